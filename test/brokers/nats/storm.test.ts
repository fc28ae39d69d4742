import { describe, expect, onTestFinished, test } from "vitest";
import type { Delivery } from "../../../src/transport/index.ts";
import { nats } from "../../../src/transports/nats/index.ts";
import { aMessage } from "../../support/messages.ts";
import { seededRandom } from "../../support/random-data.ts";
import {
  eventually,
  member,
  missing,
  newPrefix,
  openTransport,
  ownServer,
  publish,
  sharedUrl,
} from "./harness.ts";
import { Wire } from "../../support/wire.ts";

/** As the inbox does it: one after the other for each key, each message once, nothing for a delivery that was lost. */
class Handling {
  readonly effects: string[] = [];
  readonly #seen = new Set<string>();

  worker(): (delivery: Delivery) => void {
    const last = new Map<string, Promise<void>>();
    return (delivery) => {
      const key = delivery.orderKey ?? "";
      const before = last.get(key) ?? Promise.resolve();
      last.set(
        key,
        before.then(() => this.#handle(delivery)),
      );
    };
  }

  async #handle(delivery: Delivery): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 1));
    if (delivery.signal.aborted) return;
    const { id } = delivery.message;
    if (!this.#seen.has(id)) this.effects.push(id);
    this.#seen.add(id);
    await delivery.ack();
  }
}

describe.skipIf(missing)("a storm over the members of a group", () => {
  test("D6: members die, go deaf, leave and come: nothing is lost, and each key stays in order", async () => {
    const prefix = newPrefix();
    const random = seededRandom(7);
    const publisher = await openTransport({ servers: sharedUrl, prefix });
    const handling = new Handling();
    const crew: (() => Promise<unknown>)[] = [];
    const ends: (() => Promise<unknown>)[] = [];
    onTestFinished(async () => void (await Promise.all(ends.map((end) => end()))));
    const join = async (): Promise<void> => {
      const wire = await Wire.to(sharedUrl);
      const transport = nats({ servers: wire.url, prefix, lease: 1_000, timeout: 1_000 });
      ends.push(() => transport.close().then(() => wire.close()));
      await transport.open();
      const { consumption } = await member(transport, {
        topic: "t",
        prefetch: 20,
        receive: handling.worker(),
      });
      const fates = [async () => wire.sever(), async () => wire.swallow(), () => consumption.close()];
      crew.push(fates[Math.floor(random() * fates.length)] ?? (() => consumption.close()));
    };
    for (let n = 0; n < 3; n++) await join();
    const keys = Array.from({ length: 24 }, (_, n) => `k${n}`);
    const rounds = 60;
    for (let round = 0; round < rounds; round++) {
      await publish(publisher, ...keys.map((key) => aMessage({ topic: "t", key, id: `${key}-${round}` })));
      if (round % 6 !== 5) continue;
      await crew.splice(Math.floor(random() * crew.length), 1)[0]?.();
      await join();
    }
    await eventually(() => handling.effects.length >= keys.length * rounds);
    for (const key of keys) {
      const effects = handling.effects.filter((id) => id.startsWith(`${key}-`));
      expect(effects).toEqual(Array.from({ length: rounds }, (_, round) => `${key}-${round}`));
    }
  }, 120_000);

  test("G6: the server is killed five times under load: nothing is lost, and each key stays in order", async () => {
    const server = await ownServer();
    const options = { servers: server.url, lease: 2_000, timeout: 1_000 };
    const publisher = await openTransport(options);
    const handling = new Handling();
    for (let n = 0; n < 2; n++) {
      await member(await openTransport(options), { topic: "t", prefetch: 20, receive: handling.worker() });
    }
    const keys = Array.from({ length: 24 }, (_, n) => `k${n}`);
    const rounds = 50;
    const killing = (async () => {
      for (let n = 1; n <= 5; n++) {
        await eventually(() => handling.effects.length > n * 150);
        await server.kill();
        await server.start();
      }
    })();
    // As the outbox does it: what is not confirmed is sent again, before anything later of its key.
    for (let round = 0; round < rounds; round++) {
      let left = keys.map((key) => aMessage({ topic: "t", key, id: `${key}-${round}` }));
      while (left.length > 0) {
        const outcomes = await publish(publisher, ...left);
        left = left.filter((_, n) => outcomes[n]?.kind !== "published");
        if (left.length > 0) await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
    await killing;
    await eventually(() => handling.effects.length >= keys.length * rounds);
    for (const key of keys) {
      const effects = handling.effects.filter((id) => id.startsWith(`${key}-`));
      expect(effects).toEqual(Array.from({ length: rounds }, (_, round) => `${key}-${round}`));
    }
  }, 120_000);
});
