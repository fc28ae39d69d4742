import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { PublishOutcome } from "../../../src/transport/index.ts";
import type { KafkaServer } from "../../support/brokers/kafka-server.ts";
import { aMessage } from "../../support/messages.ts";
import {
  ackAll,
  eventually,
  Member,
  missing,
  newPrefix,
  ownServer,
  publish,
  createTransport,
} from "./harness.ts";
import { Wire } from "../../support/wire.ts";

describe.skipIf(missing)("faults between us and Kafka", () => {
  let wire: Wire;
  let server: KafkaServer;
  let brokers: string[];
  beforeAll(async () => {
    wire = await Wire.open();
    server = await ownServer({ advertisedPort: wire.port });
    wire.leadTo(`tcp://${server.url}`);
    brokers = [`127.0.0.1:${wire.port}`];
  });
  afterAll(async () => {
    await server.stop();
    await wire.close();
  });

  test("P-02, P-09: killed with confirms outstanding, it takes the rest after its return, and nothing confirmed is lost", async () => {
    const transport = createTransport({ brokers, timeout: "20s" });
    await transport.open();
    await publish(transport, aMessage({ id: "first" }));
    const outcomes = new Map<string, PublishOutcome["kind"]>();
    let n = 0;
    const round = async (): Promise<void> => {
      const batch = Array.from({ length: 50 }, () => aMessage({ id: `k-${++n}`, key: `key-${n % 7}` }));
      const results = await publish(transport, ...batch);
      for (const [at, { id }] of batch.entries()) outcomes.set(id, results[at]?.kind ?? "unknown");
    };
    const rounds: Promise<void>[] = [];
    for (let i = 0; i < 20; i++) {
      rounds.push(round());
      if (i === 10) await server.kill();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await server.start();
    await Promise.all(rounds);
    expect(new Set(outcomes.values())).toContain("published");
    expect(outcomes.size).toBe(1_000);
    expect([...outcomes.values()].filter((kind) => kind === "rejected" || kind === "refused")).toEqual([]);
    const member = await Member.of(transport, { receive: ackAll, prefetch: 100 });
    expect(await publish(transport, aMessage({ id: "last", key: "z" }))).toEqual([{ kind: "published" }]);
    const confirmed = [...outcomes].filter(([, kind]) => kind === "published").map(([id]) => id);
    await member.until(() => [...confirmed, "last"].every((id) => member.ids.includes(id)));
    const twice = member.ids.filter((id, at) => member.ids.indexOf(id) !== at);
    expect(twice.filter((id) => outcomes.get(id) === "published")).toEqual([]);
  });

  test("down at the start, it is unreachable; once it is up, publishing resumes without help", async () => {
    await server.kill();
    const transport = createTransport({ brokers, connectTimeout: 500 });
    await expect(transport.open()).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
    expect((await publish(transport, aMessage()))[0]?.kind).toBe("unreachable");
    const member = await Member.of(transport, { receive: ackAll });
    expect(member.consumption?.health().ok).toBe(false);
    expect(member.consumption?.health().detail).toContain("127.0.0.1");
    await server.start();
    await eventually(() => member.consumption?.health().ok === true);
    expect(await publish(transport, aMessage({ id: "after" }))).toEqual([{ kind: "published" }]);
    await member.got(1);
    expect(member.ids).toEqual(["after"]);
  });

  test("P-09: cut again and again, each message is stored once, in order, and the member keeps what it holds", async () => {
    const transport = createTransport({ brokers });
    const member = await Member.of(transport, { prefetch: 5 });
    const published: string[] = [];
    for (let n = 0; n < 40; n++) {
      const sending = publish(transport, aMessage({ id: `c-${n}`, key: "one" }));
      if (n % 4 === 0) wire.cut();
      const [outcome] = await sending;
      if (outcome?.kind === "published") published.push(`c-${n}`);
    }
    const [held] = await member.got(1);
    wire.cut();
    for (let n = 0; n < published.length; n++) await (await member.got(n + 1))[n]?.ack();
    expect(member.ids).toEqual(published);
    expect(held?.signal.aborted).toBe(false);
    expect(published.length).toBeGreaterThan(20);
  });

  test("P-07: in a black hole a publish ends with its sender's patience; then sender and member find a way again", async () => {
    const transport = createTransport({ brokers, timeout: "2s", connectTimeout: 500, sessionTimeout: "6s" });
    const member = await Member.of(transport, { receive: ackAll });
    await publish(transport, aMessage({ id: "before" }));
    await member.got(1);
    wire.swallow();
    const began = Date.now();
    const batch = [aMessage({ id: "swallowed", key: "k" }), aMessage({ id: "behind it", key: "k" })];
    const outcomes = await transport.publish(batch, { signal: AbortSignal.timeout(1_000) });
    expect(Date.now() - began).toBeLessThan(2_000);
    expect(outcomes.map(({ kind }) => kind)).toEqual(["unknown", "unknown"]);
    await eventually(() => member.consumption?.health().ok === false);
    wire.heal();
    wire.cut();
    await eventually(() => member.consumption?.health().ok === true);
    await expect
      .poll(async () => (await publish(transport, aMessage({ id: "healed" })))[0]?.kind, { timeout: 20_000 })
      .toBe("published");
    await member.until(() => member.ids.includes("healed"));
  });

  test("when the log has lost what was read, an old delivery is lost too and settles no new record in its place", async () => {
    const warnings: string[] = [];
    const options = { brokers, prefix: newPrefix(), sessionTimeout: "60s" as const };
    const reading = createTransport({ ...options, warn: (warning) => warnings.push(warning) });
    const member = await Member.of(reading);
    await publish(createTransport(options), aMessage({ id: "old", key: "k" }));
    const [old] = await member.got(1);
    await server.kill();
    await emptyLogs(server.data, `${options.prefix}events.order.placed`);
    await server.start();
    await eventually(() => warnings.some((warning) => warning.includes("no longer in the log")));
    const again = createTransport(options);
    expect(await publish(again, aMessage({ id: "new", key: "k" }))).toEqual([{ kind: "published" }]);
    await member.until(() => member.ids.includes("new"));
    await old?.ack();
    await member.consumption?.close();
    const heir = await Member.of(again, { receive: ackAll });
    await heir.got(1);
    expect([heir.ids, old?.signal.aborted]).toEqual([["new"], true]);
  });

  test("a transport that was closed answers at once", async () => {
    const transport = createTransport({ brokers, prefix: newPrefix() });
    await publish(transport, aMessage());
    await transport.close();
    expect((await publish(transport, aMessage()))[0]?.kind).toBe("unreachable");
  });
});

/** As after a disk was replaced: the topic is there, its records are not. */
async function emptyLogs(folder: string, topic: string): Promise<void> {
  for (const partition of await readdir(folder)) {
    if (!partition.startsWith(`${topic}-`)) continue;
    for (const file of await readdir(join(folder, partition)))
      if (file !== "partition.metadata") await rm(join(folder, partition, file));
  }
}
