"""The YAML that users bring: read strictly, with the file and line of every mistake, and turned into domain values.

`document` reads YAML and JSON text within bounds, `model` is the base of all kinds, one module a system holds its kinds
(`kubernetes`, `karmada` with `karmada_placement` and `karmada_upkeep`, `ocm`, `crane`, `karpenter`), `options` reads what
annotations say beyond them, `kinds` lists them, `parse` checks files against them, and `selection` says which policy a workload
falls under. What becomes of manifests as events is `events.intake`'s business.
"""
