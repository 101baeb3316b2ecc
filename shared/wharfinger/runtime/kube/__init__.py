"""Reading member clusters and hubs: which server, with which credentials, and what it holds, listed
once and watched from then on.

`kubeconfig` says how a server is reached, `credentials` proves who asks, `api` sends one request,
`reflector` keeps a kind of object up to date. What the objects mean is not known here.
"""
