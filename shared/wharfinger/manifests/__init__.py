"""The YAML that users bring, with the file and line of every mistake, turned into domain values.

One folder a system (`kubernetes`, `karmada`, `karpenter`, `descheduler`, our own `wharfinger`;
`ocm` and `crane` are one file each). Beside them what all share: `document` reads text with its
lines, `model` is the base of all models, `parse` checks, `kinds` lists what is read.
"""
