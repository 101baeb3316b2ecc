"""The devices of a node one by one: whether a pod's fit, which it gets, and on which node they are spent best.

`fit` answers the first two. Which devices of a node a pod gets is always best fit: the fullest that still have room.
On which node is the business of a strategy (`strategies`), and of those there are three: fill up what is nearly full
(`best-fit`), keep what is left usable (`fragmentation`), or lose as little as can be of what the node will still be
filled with (`expected-fill`, ours). The latter two measure a node against what is typically asked for (`workload`),
which a cluster learns from what was asked of it.

Everything is integers: thousandths of a device, milli-cpu, bytes; what is expected of a device is in millionths. A
strategy's cost of a pod on a node depends on nothing but that node's state, so that it is computed anew only for
nodes that were touched. `strategies` is the readable truth over plain values; `kernels` and `columns` are the same
over the columns of many nodes.
"""
