"""Serves moto's S3 at HOST PORT, one request at a time.

moto_server itself serves several at a time, and is not made for that: an object is there before its
metadata is, and two requests that compute an ETag read one buffer without a lock.
"""

import sys
import threading

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple

moto = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()


def serve(environ, start_response):
    with lock:
        return moto(environ, start_response)


host, port = sys.argv[1:]
run_simple(host, int(port), serve, threaded=True, request_handler=MotoRequestHandler)
