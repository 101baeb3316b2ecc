"""One file for each rule that can refuse or score a candidate: its condition, its reason, and the
changes that would undo a refusal.

`clusters` has the filters of member clusters, `nodes` the plugins that choose nodes of one cluster.
The engine calls the rules in the order of their list and knows no rule by name. Explanations and
suggestions take the reason, the sentence and the changes from the rule.
"""
