"""Short jobs by HyperQueue: a server, a worker and its Python client, in one process. Prints how
many seconds it took from the submission until all have ended.

    jobs_of_hyperqueue.py JOBS CORES FOLDER
"""

import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

jobs, cores, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with LocalCluster(folder, WorkerConfig(cores=cores)) as cluster:
    client = cluster.client()
    job = Job()
    for _ in range(jobs):
        job.program(["true"], stdout=None, stderr=None)
    begun = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    print(time.monotonic() - begun)
