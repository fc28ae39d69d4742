import type { Server } from "node:http";
import type { Socket } from "node:net";

/**
 * Keeps the newest connections of a server. `maxConnections` of Node refuses the new ones instead, so a client that holds
 * enough idle connections could keep probes out.
 */
export class NewestConnections {
  readonly #max: number;
  /** From the one that has been silent for longest: a connection counts as new again with each complete request. */
  readonly #sockets = new Set<Socket>();

  constructor(server: Server, max: number) {
    this.#max = max;
    server.on("connection", (socket) => this.#add(socket));
    server.on("request", ({ socket }) => this.#renew(socket));
  }

  get count(): number {
    return this.#sockets.size;
  }

  #add(socket: Socket): void {
    if (this.#sockets.size >= this.#max) {
      for (const oldest of this.#sockets) {
        this.#sockets.delete(oldest);
        oldest.destroy();
        break;
      }
    }
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
  }

  #renew(socket: Socket): void {
    if (this.#sockets.delete(socket)) this.#sockets.add(socket);
  }
}
