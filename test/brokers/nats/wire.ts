import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A wire to a server that can be cut, or that swallows everything without a word. */
export interface Wire {
  readonly url: string;
  /** Breaks what is connected; new connections are let through. */
  cut(): void;
  /** Breaks everything, and nobody gets through any more. */
  sever(): void;
  /** From now on nothing arrives in either direction, and nobody is told. */
  swallow(): void;
  /** As it was. What was swallowed stays lost. */
  heal(): void;
  close(): Promise<void>;
}

export async function wireTo(url: string): Promise<Wire> {
  const target = new URL(url.replace(/^[a-z]+:/, "http:"));
  const pairs = new Set<{ client: Socket; upstream: Socket; deaf: boolean }>();
  let state: "open" | "severed" | "deaf" = "open";
  const server = createServer((client) => {
    if (state === "severed") return void client.destroy();
    const upstream = connect(Number(target.port), target.hostname);
    const pair = { client, upstream, deaf: false };
    pairs.add(pair);
    const end = (): void => {
      pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    const relay = (from: Socket, to: Socket): void => {
      from.on("error", () => undefined);
      from.on("close", end);
      from.on("data", (bytes) => {
        if (state === "deaf") pair.deaf = true;
        if (!pair.deaf) to.write(bytes);
      });
    };
    relay(client, upstream);
    relay(upstream, client);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = (): void => {
    for (const { client, upstream } of pairs) {
      client.destroy();
      upstream.destroy();
    }
  };
  return {
    url: `nats://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    sever: () => {
      state = "severed";
      cut();
    },
    swallow: () => {
      state = "deaf";
    },
    heal: () => {
      state = "open";
    },
    close: async () => {
      cut();
      server.close();
      await once(server, "close");
    },
  };
}
