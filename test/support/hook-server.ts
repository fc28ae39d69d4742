import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

export interface HookRequest {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** An HTTP endpoint that remembers what was posted and answers as the test says; null never answers. */
export async function hookServer() {
  const posted: HookRequest[] = [];
  const changed: (() => void)[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      posted.push({ headers: request.headers, body: Buffer.concat(chunks).toString() });
      const status = handle.answer(posted.length);
      if (status !== null) response.writeHead(status, { location: handle.url }).end("some words");
      for (const wake of changed.splice(0)) wake();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const handle = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook/secret-path`,
    posted,
    answer: (_nth: number): number | null => 200,
    until: async (count: number): Promise<readonly HookRequest[]> => {
      while (posted.length < count) await new Promise<void>((resolve) => changed.push(resolve));
      return posted;
    },
  };
  return handle;
}
