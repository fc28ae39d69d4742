import { jetstreamManager } from "@nats-io/jetstream";
import { connect, nkeys } from "@nats-io/transport-node";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  natsPermissions,
  type NatsCredentials,
  type NatsOptions,
} from "../../../src/transports/nats/index.ts";
import { aMessage } from "../../support/messages.ts";
import { certificates } from "./certificates.ts";
import {
  eventually,
  member,
  missing,
  openTransport,
  ownServer,
  publish,
  createTransport,
} from "./harness.ts";
import { Wire } from "../../support/wire.ts";

const published = [{ kind: "published" }];

/** What opening fails with, as a person would see it. */
async function failure(options: NatsOptions): Promise<string> {
  const thrown: unknown = await createTransport(options)
    .open()
    .then(
      () => "it opened",
      (error: unknown) => error,
    );
  return thrown instanceof Error ? `${thrown.message} ${String(thrown.cause)}` : String(thrown);
}

describe.skipIf(missing)("security of NATS", () => {
  test("B9: user and password, token and nkey let in; wrong ones do not, and are not repeated in the error", async () => {
    const seeds = nkeys.createUser();
    const seed = new TextDecoder().decode(seeds.getSeed());
    const users = await ownServer({
      config: `authorization { users: [{ user: u, password: secret1 }, { nkey: ${seeds.getPublicKey()} }] }`,
    });
    const tokens = await ownServer({ config: "authorization { token: secret2 }" });
    const allowed: [string, NatsCredentials][] = [
      [users.url, { user: "u", password: "secret1" }],
      [users.url, { nkeySeed: seed }],
      [tokens.url, { token: "secret2" }],
    ];
    for (const [servers, credentials] of allowed) {
      expect(await publish(await openTransport({ servers, credentials }), aMessage())).toEqual(published);
    }
    const denied: [string, NatsCredentials | undefined][] = [
      [users.url, { user: "u", password: "wrong-secret" }],
      [users.url, { nkeySeed: new TextDecoder().decode(nkeys.createUser().getSeed()) }],
      [tokens.url, { token: "wrong-secret" }],
      [tokens.url, undefined],
    ];
    for (const [servers, credentials] of denied) {
      const message = await failure({ servers, ...(credentials === undefined ? {} : { credentials }) });
      expect(message).toMatch(/authorization/i);
      expect(message).not.toContain("secret");
      expect(message).not.toContain("SU");
    }
  });

  test("B9: credentials are asked for again on each connection, and a failing function is no crash", async () => {
    const server = await ownServer({
      config: "authorization { users: [{ user: u, password: old }, { user: v, password: new }] }",
    });
    const wire = await Wire.to(server.url);
    onTestFinished(() => wire.close());
    const answers: (() => NatsCredentials | Promise<NatsCredentials>)[] = [
      () => ({ user: "u", password: "old" }),
      () => {
        throw new Error("vault says secret3");
      },
      () => Promise.resolve({ user: "v", password: "new" }),
    ];
    let asked = 0;
    const transport = await openTransport({
      servers: wire.url,
      credentials: () => (answers[asked++] ?? answers[2])?.() ?? {},
    });
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    wire.cut();
    await eventually(() => asked >= 2);
    await eventually(() =>
      /credential function for NATS failed/.test(reader.consumption.health().detail ?? ""),
    );
    await eventually(
      async () => (await publish(transport, aMessage({ topic: "t" })))[0]?.kind === "published",
    );
    await reader.until(1);
    expect(asked).toBe(3);
  });

  test("B9: TLS is verified: the right authority gets in, all others do not", async () => {
    const { folder, pem } = certificates();
    const stranger = certificates();
    const server = await ownServer({
      config: `tls { cert_file: "${folder}/server.pem", key_file: "${folder}/server.key" }`,
    });
    const servers = server.url.replace("nats:", "tls:");
    const transport = await openTransport({ servers, tls: { ca: pem.ca } });
    expect(await publish(transport, aMessage())).toEqual(published);
    expect(await failure({ servers, tls: true })).toMatch(/certificate|authority|verify/i);
    expect(await failure({ servers, tls: { ca: stranger.pem.ca } })).toMatch(/certificate|authority|verify/i);
    expect(await failure({ servers, tls: { ca: pem.ca, servername: "elsewhere.test" } })).toMatch(
      /altnames/i,
    );
    await openTransport({ servers, tls: { ca: pem.ca, servername: "nats.test" } });
    const plain = await ownServer();
    expect(await failure({ servers: plain.url, tls: { ca: pem.ca } })).toMatch(/does not support 'tls'/);
  });

  test("B9: a server that asks for a certificate gets ours", async () => {
    const { folder, pem } = certificates();
    const server = await ownServer({
      config: `tls { cert_file: "${folder}/server.pem", key_file: "${folder}/server.key", ca_file: "${folder}/ca.pem", verify: true }`,
    });
    const { ca, client } = pem;
    const transport = await openTransport({ servers: server.url, tls: { ca, ...client } });
    expect(await publish(transport, aMessage())).toEqual(published);
    expect(await failure({ servers: server.url, tls: { ca }, timeout: 1_000 })).not.toBe("it opened");
  });

  test("SEC-33: with the least permissions everything works, and nothing else", async () => {
    const inboxPrefix = "_INBOX_billing";
    const worker = natsPermissions({ service: "billing", role: "worker", inboxPrefix });
    const publisher = natsPermissions({ service: "web", role: "publisher" });
    const server = await ownServer({
      config: `authorization { users: [
        { user: admin, password: a },
        { user: billing, password: b, permissions: ${JSON.stringify(worker)} },
        { user: web, password: c, permissions: ${JSON.stringify(publisher)} },
      ] }`,
    });
    const as = (user: string, password: string, more: NatsOptions = {}): NatsOptions => ({
      servers: server.url,
      credentials: { user, password },
      timeout: 2_000,
      ...more,
    });
    expect(await failure(as("billing", "b", { inboxPrefix }))).toMatch(/permission/i);
    await (await openTransport(as("admin", "a"))).close();

    const consumer = await openTransport(as("billing", "b", { inboxPrefix }));
    const sender = await openTransport(as("web", "c"));
    const service = "billing";
    const fates = ["retry", "dead"];
    const ordered = await member(consumer, {
      topic: "t",
      service,
      receive: (delivery) => {
        const fate = fates.shift();
        if (fate === "retry")
          return delivery.retry({ delayMs: 0, countsAsAttempt: true, error: "message to" });
        if (fate === "dead") return delivery.deadLetter?.(note);
        return delivery.ack();
      },
    });
    const loose = await member(consumer, { topic: "t", service, group: "loose", ordered: false });
    expect(await publish(sender, aMessage({ topic: "t", key: "k" }))).toEqual(published);
    expect((await ordered.until(2)).map(({ attempt }) => attempt)).toEqual([1, 2]);
    await loose.until(1);
    expect((await consumer.depths?.(["t"]))?.get("t")).toBe(1);
    const topics = [{ topic: "t", kind: "event" }] as const;
    expect(await consumer.lags?.([{ service, group: "loose", ordered: false, topics }])).toEqual([
      { group: "loose", topic: "t", waiting: 1, oldestAgeSeconds: expect.any(Number) },
    ]);
    await ordered.consumption.close();
    const again = await member(consumer, { topic: "t", service });
    await publish(sender, aMessage({ topic: "t", id: "next" }));
    await again.until(1);

    for (const [user, pass, inbox] of [
      ["billing", "b", inboxPrefix],
      ["web", "c", "_INBOX"],
    ] as const) {
      const nc = await connect({
        servers: server.url.replace("nats://", ""),
        user,
        pass,
        inboxPrefix: inbox,
      });
      onTestFinished(() => nc.close());
      const jsm = await jetstreamManager(nc, { checkAPI: false, timeout: 2_000 });
      await expect(jsm.streams.delete("dp_messages")).rejects.toThrow(/permission/i);
      await expect(jsm.streams.purge("dp_messages")).rejects.toThrow(/permission/i);
      await expect(jsm.streams.update("dp_messages", { max_msgs: 1 })).rejects.toThrow(/permission/i);
      await expect(jsm.streams.add({ name: "other", subjects: ["other"] })).rejects.toThrow(/permission/i);
      await expect(jsm.streams.getMessage("dp_dead", { seq: 1 })).rejects.toThrow(/permission/i);
      await expect(jsm.consumers.delete("dp_retries", "any")).rejects.toThrow(/permission/i);
    }
    await expect(member(sender, { topic: "t", service: "web" })).rejects.toThrow();
    await expect(member(consumer, { topic: "t", service: "shipping" })).rejects.toThrow();
  });
});

const note = {
  error_type: "Error",
  error_message: "message to",
  stack_trace: "",
  retry_count: "1",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "t",
  consumer_group: "group",
  original_timestamp: "2026-01-02T03:04:05.678901Z",
};
