import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

interface Pair {
  readonly client: Socket;
  readonly upstream: Socket;
  /** Something was swallowed: what came after it would make no sense. */
  deaf: boolean;
}

/** A wire to a server that a test can cut, or leave open while nothing comes through any more. */
export class Wire {
  readonly #server = createServer((client) => this.#accept(client));
  readonly #pairs = new Set<Pair>();
  #target = new URL("tcp://127.0.0.1:0");
  #state: "open" | "severed" | "swallowing" = "open";
  #lastMessage: string | undefined;
  #lastBeforeSilence: string | undefined;

  private constructor() {}

  /** A proxy without a target yet, for a server that must advertise this port before it has its own. */
  static async open(): Promise<Wire> {
    const wire = new Wire();
    wire.#server.listen(0, "127.0.0.1");
    await once(wire.#server, "listening");
    return wire;
  }

  static async to(url: string): Promise<Wire> {
    const wire = await Wire.open();
    wire.leadTo(url);
    return wire;
  }

  leadTo(url: string): void {
    this.#target = new URL(url);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The server's own, with this end of the wire in its place. */
  get url(): string {
    const url = new URL(this.#target);
    url.hostname = "127.0.0.1";
    url.port = String(this.port);
    return url.href;
  }

  /** Ends every connection; new ones are welcome. */
  cut(): void {
    for (const { client, upstream } of this.#pairs) {
      client.destroy();
      upstream.destroy();
    }
  }

  /** As if the machine at this end had died: every connection ends, and none can be made. */
  sever(): void {
    this.#state = "severed";
    this.cut();
  }

  /** Drops bytes in both directions silently, and those of new connections too. */
  swallow(): void {
    this.#state = "swallowing";
  }

  /** The open connections go silent for good; new ones work. */
  deafen(): void {
    for (const pair of this.#pairs) pair.deaf = true;
  }

  /** As it was. What was swallowed stays lost, and so does the connection it was lost on. */
  heal(): void {
    this.#state = "open";
    for (const { client, upstream } of this.#pairs) if (client.destroyed) upstream.end();
  }

  /** How many connections a client holds open. */
  get clients(): number {
    return [...this.#pairs].filter(({ client }) => !client.destroyed).length;
  }

  /** A connection breaks the moment its client has sent this: the server gets it, its answer is lost. */
  cutAfter(word: string): void {
    this.#lastMessage = word;
  }

  /** A connection goes silent the moment its client has sent this: the server gets it, and hears nothing more. */
  deafenAfter(word: string): void {
    this.#lastBeforeSilence = word;
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }

  #accept(client: Socket): void {
    if (this.#state === "severed") {
      client.destroy();
      return;
    }
    const upstream = connect(Number(this.#target.port), this.#target.hostname);
    const pair: Pair = { client, upstream, deaf: false };
    this.#pairs.add(pair);
    for (const socket of [client, upstream]) socket.on("error", () => undefined);
    client.on("data", (bytes) => this.#said(pair, bytes));
    upstream.on("data", (bytes) => this.#pass(pair, client, bytes));
    // What the client said last still reaches the server; through a silent wire not even the end does.
    client.on("close", () => {
      if (this.#state !== "swallowing") upstream.end();
    });
    upstream.on("close", () => {
      client.destroy();
      this.#pairs.delete(pair);
    });
  }

  #said(pair: Pair, bytes: Buffer): void {
    this.#pass(pair, pair.upstream, bytes);
    if (this.#lastMessage !== undefined && bytes.includes(this.#lastMessage)) pair.client.destroy();
    if (this.#lastBeforeSilence !== undefined && bytes.includes(this.#lastBeforeSilence)) pair.deaf = true;
  }

  #pass(pair: Pair, to: Socket, bytes: Buffer): void {
    if (this.#state === "swallowing") pair.deaf = true;
    if (!pair.deaf && to.writable) to.write(bytes);
  }
}

/** One process's wires to a broker: one to each of its nodes. */
export class Wires {
  readonly #wires: readonly Wire[];

  private constructor(wires: readonly Wire[]) {
    this.#wires = wires;
  }

  /** `url`: one address, or the addresses of a cluster's nodes, separated by commas. */
  static async to(url: string): Promise<Wires> {
    return new Wires(await Promise.all(url.split(",").map((one) => Wire.to(one))));
  }

  /** The addresses of this end, in the order of the nodes. */
  get urls(): readonly string[] {
    return this.#wires.map((wire) => wire.url);
  }

  /** Ends every connection; new ones can be made at once. */
  cut(): void {
    for (const wire of this.#wires) wire.cut();
  }

  /** Ends every connection for good, as if the process had died. */
  sever(): void {
    for (const wire of this.#wires) wire.sever();
  }

  async close(): Promise<void> {
    await Promise.all(this.#wires.map((wire) => wire.close()));
  }
}
