"""prol as an HTTP service: one thread learns, snapshots predict, and acknowledged work survives crashes.

The way of `POST /learn`, one module after the other:

1. `server` owns the socket and the process; it opens the folder with `store.open_service`.
2. `middleware` checks each request with `security` (host, rate, token) and reads its body within the limits.
3. `app` and `routes` map it to a call of `service`; `schemas` holds the JSON bodies, `uploads` decodes the images.
4. `service` puts a job of `jobs` into the queue and waits for its future.
5. `writer` takes all waiting jobs as one batch of `batches`, applies it to the learner, and has `store` write one
   checkpoint with learner and records. Only after fsync does it resolve the futures.
6. The response goes back through the same modules. If anything before fsync fails, the learner returns to the last
   checkpoint and the client gets an error.

`POST /predict` takes steps 1 to 3 and computes from the current snapshot of `snapshots`; `pending` holds the images in
memory until a label arrives. `monitoring` counts what happens, for the page and for Prometheus.
"""
