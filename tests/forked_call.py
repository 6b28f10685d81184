"""`python` for a shell: lend the streams to a fork that runs the program, pass signals on, end as it ends.

forked_call.py ADDRESS PYTHON ARGUMENT...    what is neither a file nor `-m` runs in a Python of its own
"""

import array
import json
import os
import signal
import socket
import struct
import sys

STATUS = struct.Struct("i")


def main(address: str, python: str, *arguments: str) -> None:
    """Run a program; this process ends with its exit code, or by its signal."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] != "-m"):
        os.execv(python, [python, *arguments])
    status = socket.socket(socket.AF_UNIX)
    status.connect(address)
    message = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode() + b"\n"
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    status.sendall(message[status.sendmsg([message[:1000]], rights) :])
    (pid,) = STATUS.unpack(status.recv(STATUS.size))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    (code,) = STATUS.unpack(status.recv(STATUS.size))
    if code >= 0:
        os._exit(code)
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


main(*sys.argv[1:])
