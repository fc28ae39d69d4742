import type { Message } from "../../message/index.ts";
import { routeOf, routingKeyOf, type Route, type TopologySettings } from "./topology.ts";

export interface Address {
  readonly route: Route;
  readonly routingKey: string;
}

const MOST = 1_000;

/** Where messages go. They are many and their addresses few, so these are remembered. */
export class Addresses {
  readonly #settings: TopologySettings;
  readonly #known = new Map<string, Address>();

  constructor(settings: TopologySettings) {
    this.#settings = settings;
  }

  of(message: Message): Address {
    const { kind, topic, source, headers } = message;
    const name = `${kind}\0${topic}\0${source}\0${headers["severity"] ?? ""}`;
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (this.#known.size >= MOST) this.#known.clear();
    const route = routeOf(topic, kind, this.#settings);
    const address = { route, routingKey: routingKeyOf(message, route) };
    this.#known.set(name, address);
    return address;
  }
}
