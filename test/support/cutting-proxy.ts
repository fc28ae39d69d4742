import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { once } from "node:events";

/** A wire to PostgreSQL that breaks the moment the client has sent `word`: the server gets it, its answer is lost. */
export async function cuttingProxy(
  url: string,
  word: string,
): Promise<{ url: string; close: () => Promise<void> }> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => sockets.delete(socket));
    }
    upstream.pipe(client);
    client.on("data", (bytes) => {
      if (bytes.includes(word)) {
        upstream.unpipe(client);
        upstream.end(bytes);
        client.destroy();
        return;
      }
      upstream.write(bytes);
    });
    client.on("close", () => upstream.end());
    upstream.on("close", () => client.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = new URL(url);
  cut.hostname = "127.0.0.1";
  cut.port = String((server.address() as AddressInfo).port);
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, "close");
  };
  return { url: cut.href, close };
}
