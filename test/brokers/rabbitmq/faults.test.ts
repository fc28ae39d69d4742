import { afterEach, describe, expect, test } from "vitest";
import { aMessage } from "../../support/messages.ts";
import { brokerUrl, closeAll, missing, ownPrefix, server, transport } from "./broker.ts";
import { Member, publish, publishIds, until } from "./member.ts";
import { Wire } from "../../support/wire.ts";

const wires: Wire[] = [];

async function openWire(): Promise<Wire> {
  const wire = await Wire.to(brokerUrl);
  wires.push(wire);
  return wire;
}

afterEach(async () => {
  await closeAll();
  await Promise.all(wires.splice(0).map((wire) => wire.close()));
});

const keep = (): undefined => undefined;

/** Publishes each id until the broker has confirmed it, as the relay does. */
async function persist(to: Parameters<typeof publishIds>[0], ids: readonly string[]): Promise<void> {
  let left = ids;
  await until(async () => {
    const kinds = await publishIds(to, left);
    left = left.filter((_, n) => kinds[n] !== "published");
    return left.length === 0;
  }, "confirms");
}

describe.skipIf(missing !== undefined)("RabbitMQ under faults", () => {
  test("a broker that is down at the start fails nothing but the first try, and is found when it comes", async () => {
    const wire = await openWire();
    wire.sever();
    const shop = transport({ url: wire.url, timeout: "1s" });
    await expect(shop.open()).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
    const member = await Member.of(shop);
    expect(member.consumption?.health()).toMatchObject({ ok: false });
    expect(await publishIds(shop, ["early"])).toEqual(["unreachable"]);
    wire.heal();
    await until(() => member.consumption?.health().ok === true, "the subscription");
    await persist(shop, ["late"]);
    await member.got(1);
    expect(member.ids).toEqual(["late"]);
  });

  test("B9: a wrong password is reported without being repeated", async () => {
    const shop = transport({ credentials: { username: "nobody", password: "hunter2" } });
    const failure = await shop.open().catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
    expect(String(failure)).toMatch(/ACCESS.REFUSED/);
    expect(String(failure)).not.toContain("hunter2");
    const [outcome] = await publish(shop, aMessage());
    expect(outcome?.kind === "unreachable" && outcome.error.message).not.toContain("hunter2");
  });

  test("a cut connection: open deliveries are lost, everything is declared again, nothing is missing", async () => {
    const wire = await openWire();
    const shop = transport({ url: wire.url });
    const member = await Member.of(shop, { receive: keep });
    await persist(shop, ["a", "b"]);
    const held = await member.got(2);
    wire.cut();
    await until(() => held.every(({ signal }) => signal.aborted), "the loss");
    await held[0]?.ack();
    await held[1]?.retry({ delayMs: 0, countsAsAttempt: true, error: "too late" });
    await member.got(4);
    expect(member.ids.slice(2).toSorted()).toEqual(["a", "b"]);
    expect(member.received.slice(2).map(({ attempt }) => attempt)).toEqual([1, 1]);
    await persist(shop, ["c"]);
    await member.got(5);
    expect(member.ids[4]).toBe("c");
    await until(() => member.consumption?.health().ok === true, "health");
  });

  test("P-07: confirmTimeout bounds the opening of a channel and what is declared on it, not the confirm alone", async () => {
    const wire = await openWire();
    const shop = transport({ url: wire.url, confirmTimeout: "300ms", timeout: "20s", unrouted: "drop" });
    await shop.open();
    const outcome = async (change: Parameters<typeof aMessage>[0]): Promise<unknown> => {
      const beganMs = performance.now();
      const [answer] = await publish(shop, aMessage(change));
      expect(performance.now() - beganMs).toBeLessThan(3_000);
      return answer;
    };
    wire.swallow();
    expect(await outcome({})).toMatchObject({
      kind: "unreachable",
      error: { code: "TRANSPORT_UNREACHABLE" },
    });
    wire.heal();
    wire.cut();
    await persist(shop, ["opened"]);
    wire.swallow();
    expect(await outcome({ topic: "events.invoice.sent" })).toMatchObject({ kind: "unreachable" });
    wire.cut();
  });

  test("P-07: in a black hole publishing ends within its time, and afterwards publishing and consuming continue", async () => {
    const wire = await openWire();
    const shop = transport({ url: wire.url, confirmTimeout: "500ms", timeout: "2s", heartbeat: "1s" });
    const member = await Member.of(shop);
    await persist(shop, ["before"]);
    wire.swallow();
    const began = performance.now();
    const [outcome] = await publish(shop, aMessage({ id: "into the dark" }));
    expect(outcome).toMatchObject({ kind: "unknown", error: { code: "TRANSPORT_TIMEOUT" } });
    expect(performance.now() - began).toBeLessThan(5_000);
    await until(() => member.consumption?.health().ok === false, "the silence to be noticed");
    wire.heal();
    wire.cut();
    await persist(shop, ["after"]);
    await until(() => member.ids.includes("after"), "what came afterwards");
  });

  test("P-02: a broker killed with confirms outstanding: unknown or unreachable, then publishing continues and nothing is lost", async () => {
    const shop = transport({ prefix: ownPrefix() });
    const seen = new Set<string>();
    const member = await Member.of(shop, {
      prefetch: 50,
      receive: (delivery) => seen.add(delivery.message.id) && delivery.ack(),
    });
    const ids: string[] = [];
    const doubtful: string[] = [];
    const killed = server().kill();
    for (let n = 0; doubtful.length === 0; n++) {
      const round = Array.from({ length: 100 }, (_, m) => `m${n}-${m}`);
      const kinds = await publishIds(shop, round);
      expect(kinds.filter((kind) => !["published", "unknown", "unreachable"].includes(kind))).toEqual([]);
      ids.push(...round);
      doubtful.push(...round.filter((_, m) => kinds[m] !== "published"));
    }
    await killed;
    expect(ids.length).toBeGreaterThan(100);
    expect(await publishIds(shop, ["while down"])).toEqual(["unreachable"]);
    expect(member.consumption?.health()).toMatchObject({ ok: false });
    await server().start();
    await persist(shop, doubtful);
    await until(() => ids.every((id) => seen.has(id)), "every message");
    await until(() => member.consumption?.health().ok === true, "health");
  });

  test("a retry whose copy cannot be sent fails, and may be tried again", async () => {
    const wire = await openWire();
    // Only the confirm is waited for so shortly: the consumer must not find its own connection dead meanwhile.
    const shop = transport({ url: wire.url, confirmTimeout: "500ms", timeout: "30s" });
    const member = await Member.of(shop, { receive: keep });
    await persist(shop, ["a"]);
    const [first] = await member.got(1);
    await first?.retry({
      delayMs: 0,
      countsAsAttempt: true,
      error: "the channel for copies is open from here on",
    });
    const [, held] = await member.got(2);
    wire.swallow();
    await expect(held?.retry({ delayMs: 0, countsAsAttempt: true, error: "x" })).rejects.toMatchObject({
      code: "TRANSPORT_TIMEOUT",
    });
    expect(held?.signal.aborted).toBe(false);
    wire.heal();
    wire.cut();
    await until(() => member.received.length >= 3, "its return");
  });

  test("a connection given up as silent loses its deliveries at once, long before a heartbeat is missed", async () => {
    const wire = await openWire();
    const patience = { timeout: "500ms", rebalanceInterval: "100ms", heartbeat: "60s" } as const;
    const shop = transport({ url: wire.url, ...patience });
    const member = await Member.of(shop, { receive: keep });
    await persist(shop, ["a"]);
    const [held] = await member.got(1);
    wire.swallow();
    await until(() => member.consumption?.health().ok === false, "the silence to be noticed");
    const noticed = performance.now();
    await until(() => held?.signal.aborted === true, "the loss");
    expect(performance.now() - noticed).toBeLessThan(1_000);
    wire.heal();
    wire.cut();
    await member.got(2);
    expect(member.ids).toEqual(["a", "a"]);
  });

  test("closing a transport whose broker is gone does not hang", async () => {
    const wire = await openWire();
    const shop = transport({ url: wire.url, timeout: "500ms" });
    const member = await Member.of(shop);
    wire.swallow();
    const began = performance.now();
    await member.close();
    await shop.close();
    expect(performance.now() - began).toBeLessThan(10_000);
    expect(await publishIds(shop, ["closed"])).toEqual(["unreachable"]);
  });
});
