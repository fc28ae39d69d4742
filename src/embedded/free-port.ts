import { createServer } from "node:net";

/** A loopback port nobody listens on at this moment. */
export function findFreePort(): Promise<number> {
  return listenOnce(0);
}

/** Whether nobody listens on this loopback port at this moment. */
export function isPortFree(port: number): Promise<boolean> {
  return listenOnce(port).then(
    () => true,
    () => false,
  );
}

function listenOnce(wished: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(wished, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
