import { connect, type NetConnectOpts } from "node:net";
import { after } from "../../runtime/index.ts";
import type { PgClient } from "./pg-shape.ts";

/** Request code of the PostgreSQL wire protocol: cancel the statement that another connection runs. */
const CANCEL_REQUEST_CODE = 80_877_102;
const REQUEST_BYTES = 16;
/** Time limit of the cancel request, in milliseconds. A server that hangs may never read it. */
const CANCEL_MS = 2_000;

/**
 * Asks the server to cancel the statement of a client whose connection is being abandoned. The server does not notice a
 * closed socket while the statement waits for a lock or computes. Without this request, each retry would leave one more
 * busy session behind. Returns at once and ignores errors.
 */
export function cancelStatement(client: PgClient): void {
  const { processID, secretKey } = client;
  const address = readServerAddress(client);
  if (typeof processID !== "number" || typeof secretKey !== "number" || address === undefined) return;
  const request = Buffer.alloc(REQUEST_BYTES);
  for (const [i, value] of [REQUEST_BYTES, CANCEL_REQUEST_CODE, processID, secretKey].entries())
    request.writeInt32BE(value, i * 4);
  const socket = connect(address);
  socket.on("error", () => undefined);
  socket.once(
    "close",
    after(CANCEL_MS, () => socket.destroy(), { unref: true }),
  );
  socket.unref();
  socket.end(request);
}

// Prefer the address of the open socket: by now the host name may resolve to another server.
function readServerAddress({ host, port, connection }: PgClient): NetConnectOpts | undefined {
  const { remoteAddress, remotePort } = connection?.stream ?? {};
  if (remoteAddress !== undefined && remotePort !== undefined)
    return { host: remoteAddress, port: remotePort };
  return host?.startsWith("/") === true && port !== undefined
    ? { path: `${host}/.s.PGSQL.${port}` }
    : undefined;
}
