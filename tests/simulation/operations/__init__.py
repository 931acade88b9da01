"""Operations on a NodeRuntime and on the cluster around it, after Acto (SOSP 2023).

A walk changes one thing after another in a simulated cluster and lets it settle; then the cluster must equal one
that was installed afresh with the same input, and must be at rest. `fields` reads the schema, `values` says what each
field may be, `model` keeps what was asked for, `operations` are the steps, `snapshot` is what two clusters are
compared by, `oracle` says what good values come to, `walk` drives a cluster, `search` makes walks from seeds and
shortens those that fail.
"""
