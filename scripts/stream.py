"""A connection that carries a number each millisecond, and the longest time without one at the reader.

    stream.py serve ADDRESS
    stream.py read ADDRESS SECONDS
"""

import socket
import sys
import time

PORT = 7000
# Bytes each number has.
LENGTH = 100


def serve(address):
    with socket.create_server((address, PORT)) as server:
        connection, _ = server.accept()
        number = 0
        try:
            while True:
                connection.sendall(f"{number:{LENGTH}}".encode())
                number += 1
                time.sleep(0.001)
        except OSError:
            return


def connect(address):
    """Connects as soon as the server listens."""
    for _ in range(100):
        try:
            return socket.create_connection((address, PORT), timeout=30)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit("nobody listens")


def read(address, seconds):
    connection = connect(address)
    start = last = time.monotonic()
    gap, received = 0.0, b""
    count = 0
    while last - start < seconds:
        data = connection.recv(65536)
        assert data, "the connection ended"
        now = time.monotonic()
        gap, last = max(gap, now - last), now
        received += data
        while len(received) >= LENGTH:
            assert int(received[:LENGTH]) == count, "a number is missing"
            received = received[LENGTH:]
            count += 1
    print(f"longest gap {gap * 1e3:.0f} ms, {count} numbers in order over {last - start:.1f} s")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        read(sys.argv[2], float(sys.argv[3]))
