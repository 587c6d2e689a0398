"""A raw socket that answers every head with the same bytes, then closes, holds or resets.

What it received is appended to the record file, byte for byte, so that a test can see what really arrived.
"""

import argparse
import json
import os
import socket
import struct
import threading
import time


def serve(connection, answer, then, record):
    received = b""
    while b"\r\n\r\n" not in received:
        data = connection.recv(65536)
        if not data:
            return
        received += data
    if record:
        with open(record, "ab") as file:
            file.write(received)
    for piece in answer.split(b"<pause>"):
        connection.sendall(piece)
        time.sleep(0.05)
    if then == "hold":
        threading.Event().wait(600)
    if then == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="scripted")
    parser.add_argument("--answer", default="", help="with escapes, such as HTTP/1.1 200 OK\\r\\n")
    parser.add_argument("--then", choices=["close", "hold", "reset"], default="close")
    parser.add_argument("--record")
    parser.add_argument("--ready-file")
    options = parser.parse_args()
    answer = options.answer.encode("latin-1").decode("unicode_escape").encode("latin-1")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with open(options.ready_file + ".new", "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "url": f"http://127.0.0.1:{port}"}, file)
    os.replace(options.ready_file + ".new", options.ready_file)
    while True:
        connection, _ = listener.accept()
        arguments = (connection, answer, options.then, options.record)
        threading.Thread(target=serve, args=arguments, daemon=True).start()


main()
