"""The devices (GPUs) of a node one by one: whether a pod's devices fit, which devices it gets, and
which node uses them best.

`fit` answers the first two. A pod always gets devices by best fit: the fullest that still have
room. The node is chosen by a strategy (`strategies`), of which there are three: fill nearly full
nodes (`best-fit`), minimise fragmentation (`fragmentation`), or maximise the expected use of what
is left (`expected-fill`, ours). The latter two evaluate a node against a typical workload
(`workload`), which each cluster learns from its past requests.

All values are integers: thousandths of a device, milli-cpu, bytes; expectations are in millionths
of a device. The cost of a pod on a node depends on that node's state only, so it is recomputed only
for nodes that changed. `strategies` is the reference implementation over plain values; `kernels`
and `columns` compute the same over arrays of nodes.
"""
