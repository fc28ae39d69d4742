import { Wire } from "./wire.ts";

/** One process's wires to a broker: one to each of its nodes. */
export class Wires {
  readonly #wires: readonly Wire[];

  private constructor(wires: readonly Wire[]) {
    this.#wires = wires;
  }

  /** `url`: one address, or those of a cluster's nodes, separated by commas. */
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
