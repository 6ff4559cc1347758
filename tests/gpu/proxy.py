"""A TCP proxy on loopback whose link can be cut and restored."""

import socket
import threading


class Proxy:
    """Forwards 127.0.0.1:port to target. `cut` drops every connection and refuses new ones."""

    def __init__(self, port, target):
        self.target = target
        self.up = True
        self.lock = threading.Lock()
        self.open = set()
        self.connections = 0
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        with self.lock:
            self.up = False
            for end in self.open:
                # A dead link sends nothing at all. Closing both ends is the closest to that on one machine.
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.open.clear()

    def restore(self):
        with self.lock:
            self.up = True

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            with self.lock:
                up = self.up
            if not up:
                client.close()
                continue
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections += 1
                self.open.update((client, server))
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            with self.lock:
                self.open.discard(end)
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
