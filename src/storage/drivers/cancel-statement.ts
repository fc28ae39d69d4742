import { connect, type NetConnectOpts } from "node:net";
import { after } from "../../runtime/index.ts";
import type { PgClient } from "./pg-shape.ts";

/** Of the wire protocol: asks the server to cancel what another connection runs. */
const CANCEL_REQUEST_CODE = 80_877_102;
const REQUEST_BYTES = 16;
/** How long the request may take. A server that hangs does not read it either. */
const CANCEL_MS = 2_000;

/**
 * Asks the server to cancel what it runs for this client, whose connection is given up. The server does not notice a closed
 * socket while it waits for a lock or computes: without the request each retry would leave one more session behind. No caller
 * waits for the outcome.
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

// The server at the other end of this very socket: a name may lead to another one by now.
function readServerAddress({ host, port, connection }: PgClient): NetConnectOpts | undefined {
  const { remoteAddress, remotePort } = connection?.stream ?? {};
  if (remoteAddress !== undefined && remotePort !== undefined)
    return { host: remoteAddress, port: remotePort };
  return host?.startsWith("/") === true && port !== undefined
    ? { path: `${host}/.s.PGSQL.${port}` }
    : undefined;
}
