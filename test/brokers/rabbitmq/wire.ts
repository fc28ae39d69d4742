import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A wire to the broker that a test can cut, or leave open while nothing comes through any more. */
export class Wire {
  readonly #server = createServer((client) => this.#accept(client));
  readonly #target: URL;
  readonly #sockets = new Set<Socket>();
  #swallowing = false;
  #refusing = false;

  private constructor(url: string) {
    this.#target = new URL(url);
  }

  static async to(url: string): Promise<Wire> {
    const wire = new Wire(url);
    wire.#server.listen(0, "127.0.0.1");
    await once(wire.#server, "listening");
    return wire;
  }

  get url(): string {
    const url = new URL(this.#target);
    url.port = String((this.#server.address() as AddressInfo).port);
    return url.href;
  }

  /** Ends every connection; new ones are welcome. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** As if the machine at this end had died: every connection ends, and none can be made. */
  sever(): void {
    this.#refusing = true;
    this.cut();
  }

  /** Bytes vanish in both directions, new connections too, and nobody is told. */
  swallow(): void {
    this.#swallowing = true;
  }

  heal(): void {
    this.#swallowing = false;
    this.#refusing = false;
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #accept(client: Socket): void {
    if (this.#refusing) {
      client.destroy();
      return;
    }
    const upstream = connect(Number(this.#target.port), this.#target.hostname);
    this.#join(client, upstream);
    this.#join(upstream, client);
  }

  #join(from: Socket, to: Socket): void {
    this.#sockets.add(from);
    from.on("data", (bytes) => this.#swallowing || to.write(bytes));
    from.on("error", () => undefined);
    from.on("close", () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }
}
