import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** A wire to the broker that a test can cut, or leave open while nothing comes through any more. */
export class Wire {
  readonly #server = createServer((client) => this.#accept(client));
  readonly #sockets = new Set<Socket>();
  #target = 0;
  #swallowing = false;

  /** Open before the broker is, which must tell its clients this port instead of its own. */
  static async open(): Promise<Wire> {
    const wire = new Wire();
    wire.#server.listen(0, "127.0.0.1");
    await once(wire.#server, "listening");
    return wire;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  leadTo(port: number): void {
    this.#target = port;
  }

  /** Ends every connection; new ones are welcome. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Bytes vanish in both directions, new connections too, and nobody is told. */
  swallow(): void {
    this.#swallowing = true;
  }

  heal(): void {
    this.#swallowing = false;
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #accept(client: Socket): void {
    const upstream = connect(this.#target, "127.0.0.1");
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
