import type { Message } from "../../message/index.ts";
import { routeFor, routingKeyFor, type Route, type TopologySettings } from "./topology.ts";

export interface MessageRoute {
  readonly route: Route;
  readonly routingKey: string;
}

const MAX_CACHED_ROUTES = 1_000;

/** Where messages go. They are many and their addresses few, so these are remembered. */
export class MessageRoutes {
  readonly #settings: TopologySettings;
  readonly #known = new Map<string, MessageRoute>();

  constructor(settings: TopologySettings) {
    this.#settings = settings;
  }

  findRoute(message: Message): MessageRoute {
    const { kind, topic, source, headers } = message;
    const name = `${kind}\0${topic}\0${source}\0${headers["severity"] ?? ""}`;
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (this.#known.size >= MAX_CACHED_ROUTES) this.#known.clear();
    const route = routeFor(topic, kind, this.#settings);
    const address = { route, routingKey: routingKeyFor(message, route) };
    this.#known.set(name, address);
    return address;
  }
}
