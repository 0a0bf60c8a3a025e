"""prol as an HTTP service: one thread learns, snapshots predict, and acknowledged work survives crashes.

The path of a `POST /learn` request through the modules:

1. `server` owns the socket and the process; it opens the folder with `store.open_service`.
2. `middleware` checks each request with `security` (host, rate, token) and reads its body within the limits.
3. `app` and `routes` turn it into a call of `service`; `schemas` describes JSON bodies, `uploads` decodes images.
4. `service` puts a job (`jobs`) into the queue and waits for its future.
5. `writer` takes all waiting jobs as one batch (`batches`), applies it to the learner, and lets `store` append what
   has changed (`changes`) to the journal (`journal`), or write a checkpoint that holds learner and records (`records`).
   It resolves the futures only after fsync.
6. The response returns through the same modules. If anything fails before fsync, the learner is rolled back to the
   last commit and the client gets an error.

`POST /predict` takes steps 1 to 3, then uses the current snapshot (`snapshots`); `pending` holds the images in memory
until a label arrives. `exports` makes downloads of the last committed state. `monitoring` counts what happens, for the
page and for Prometheus. With several learners, `several` sends a request to the learner that its path names, and
`learners` loads it as `hosted`; `workers` has the threads that all of them share. `connections` limits connections, and
`tls` encrypts them.
"""
