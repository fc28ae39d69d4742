import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { BadRequest, readOrder } from "./read-order.ts";
import type { Shop } from "./shop.ts";

export interface ShopServer {
  readonly port: number;
  close(): Promise<void>;
}

type OpenShop = Pick<Shop, "place" | "find">;

interface Answer {
  readonly status: number;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
}

/** POST /orders and GET /orders/{orderId}, on this machine only. HEAD is a GET of which Node sends no body. */
export async function serveShop(shop: OpenShop, port: number): Promise<ShopServer> {
  const server = createServer((request, response) => {
    void answer(shop, request).then((given) => send(response, given));
  });
  server.requestTimeout = 10_000;
  server.listen(port, "127.0.0.1");
  await once(server, "listening").catch((error: NodeJS.ErrnoException) => {
    throw error.code === "EADDRINUSE"
      ? new Error(`Port ${port} on 127.0.0.1 is in use. Set PORT to another one (0 takes any free port).`)
      : error;
  });
  return { port: (server.address() as AddressInfo).port, close: () => close(server) };
}

async function answer(shop: OpenShop, request: IncomingMessage): Promise<Answer> {
  try {
    return await route(shop, request);
  } catch (error) {
    if (error instanceof BadRequest) {
      // The unread rest of a body would be taken for the next request.
      const headers: Record<string, string> = error.isTooLong ? { connection: "close" } : {};
      return { status: 400, body: { error: error.message }, headers };
    }
    return { status: 503, body: { error: "The shop cannot reach its database. Try again." } };
  }
}

async function route(shop: OpenShop, request: IncomingMessage): Promise<Answer> {
  const path = parsePath(request.url ?? "/");
  const orderId = /^\/orders\/([^/]+)$/.exec(path)?.[1];
  if (path === "/orders") {
    if (request.method !== "POST") return notAllowed("POST");
    return { status: 202, body: { orderId: await shop.place(await readOrder(request)) } };
  }
  if (orderId !== undefined) {
    if (request.method !== "GET" && request.method !== "HEAD") return notAllowed("GET, HEAD");
    const order = await shop.find(decodeSegment(orderId));
    return order === undefined
      ? { status: 404, body: { error: "There is no such order." } }
      : { status: 200, body: order };
  }
  const error = "There are POST /orders and GET /orders/{orderId}, nothing else.";
  return { status: 404, body: { error } };
}

// A client of a proxy sends the whole address. A path that begins with // is not an address, although it would be parsed as one.
function parsePath(target: string): string {
  if (!target.startsWith("/") && URL.canParse(target)) return new URL(target).pathname;
  return target.split("?", 1)[0] ?? "";
}

function notAllowed(allow: string): Answer {
  return { status: 405, body: { error: `Allowed here: ${allow}.` }, headers: { allow } };
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment).replaceAll("\0", "");
  } catch {
    return segment;
  }
}

function send(response: ServerResponse, { status, body, headers = {} }: Answer): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

async function close(server: Server): Promise<void> {
  const closed = once(server, "close");
  server.close();
  server.closeIdleConnections();
  const cut = setTimeout(() => server.closeAllConnections(), 1_000);
  await closed;
  clearTimeout(cut);
}
