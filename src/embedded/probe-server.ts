import { connect } from "node:net";
import { withDeadline } from "../runtime/index.ts";

const PROTOCOL_3_0 = 196_608;
const AUTHENTICATION_REQUEST = "R";

/**
 * Whether a server on this port takes connections. It begins a session as far as the first answer: a request to
 * authenticate means yes, an error ("the database system is starting up") or silence means no.
 */
export async function isAnswering(port: number, user: string, timeoutMs = 2_000): Promise<boolean> {
  const socket = connect({ host: "127.0.0.1", port });
  const firstByte = new Promise<string>((resolve) => {
    socket.once("connect", () => socket.write(startupMessage(user)));
    socket.once("data", (bytes: Buffer) => resolve(bytes.toString("latin1", 0, 1)));
    socket.on("error", () => resolve(""));
    socket.once("close", () => resolve(""));
  });
  try {
    return (await withDeadline(firstByte, timeoutMs, () => "")) === AUTHENTICATION_REQUEST;
  } finally {
    socket.destroy();
  }
}

function startupMessage(user: string): Buffer {
  const parameters = Buffer.from(`user\0${user}\0database\0postgres\0\0`);
  const head = Buffer.alloc(8);
  head.writeInt32BE(head.length + parameters.length, 0);
  head.writeInt32BE(PROTOCOL_3_0, 4);
  return Buffer.concat([head, parameters]);
}
