import { expect, test } from "vitest";
import { nats, natsPermissions, type NatsOptions } from "./index.ts";
import { natsSettings } from "./options.ts";

const refused: readonly (readonly [string, object, RegExp])[] = [
  ["an unknown key", { server: "nats://127.0.0.1:4222" }, /Did you mean "servers"/],
  ["no address", { servers: [] }, /array of addresses/],
  ["an address with another scheme", { servers: "http://127.0.0.1:4222" }, /nats:\/\//],
  ["a value that is not an address", { servers: 4222 }, /nats.servers/],
  [
    "a password in an address",
    { servers: "nats://me:hunter2@127.0.0.1" },
    /must not contain a user or password/,
  ],
  ["a remote host without TLS", { servers: "nats://10.0.0.1:4222" }, /allowInsecure/],
  ["tls:// without tls", { servers: "tls://nats.example.com" }, /tls must be set/],
  ["half a certificate", { tls: { cert: "PEM" } }, /both cert and key/],
  ["verification turned off", { tls: { rejectUnauthorized: false } }, /no option "rejectUnauthorized"/],
  ["two kinds of credentials", { credentials: { user: "u", password: "hunter2", token: "t" } }, /one of/],
  ["a user without password", { credentials: { user: "u" } }, /together/],
  ["a password that is not a string", { credentials: { user: "u", password: 1 } }, /strings/],
  ["a prefix with a wildcard", { prefix: "dp.*" }, /nats.prefix/],
  ["no partition", { partitions: 0 }, /nats.partitions/],
  ["six replicas", { replicas: 6 }, /nats.replicas/],
  ["a lease that is too short", { lease: 10 }, /nats.lease/],
  ["an invalid duration", { ackWait: "soon" }, /nats.ackWait/],
  ["an age below the duplicate window", { maxAge: "1m" }, /shorter than nats.duplicateWindow/],
  ["a flag that is not a boolean", { allowInsecure: "yes" }, /true or false/],
];

test.each(refused)("B4, B9: %s is rejected, and the error shows no secret", (_, options, reason) => {
  let thrown: unknown;
  try {
    nats(options as NatsOptions);
  } catch (error) {
    thrown = error;
  }
  expect(String(thrown)).toMatch(reason);
  expect(String(thrown)).not.toContain("hunter2");
});

test("B4: addresses keep or get a port; several addresses form a cluster", () => {
  const servers = (given: string | string[]): readonly string[] => natsSettings({ servers: given }).servers;
  expect(servers("nats://127.0.0.1")).toEqual(["127.0.0.1:4222"]);
  expect(servers("localhost:443, nats://[::1]:5222")).toEqual(["localhost:443", "[::1]:5222"]);
  const far = natsSettings({ servers: ["tls://a.example.com:80", "b.example.com"], tls: true });
  expect(far.servers).toEqual(["a.example.com:80", "b.example.com:4222"]);
});

test("B4: settings are frozen and have the documented defaults", () => {
  const settings = natsSettings();
  expect(Object.isFrozen(settings)).toBe(true);
  expect(settings).toMatchObject({
    prefix: "dp",
    partitions: 8,
    replicas: 1,
    duplicateWindowMs: 120_000,
    maxAgeMs: 604_800_000,
    leaseMs: 10_000,
    ackWaitMs: 30_000,
  });
});

test("B9: permissions cover only the service and its streams", () => {
  const worker = natsPermissions({ service: "billing", role: "worker", inboxPrefix: "_INBOX_billing" });
  const publisher = natsPermissions({ service: "billing", role: "publisher" });
  for (const subject of [...worker.publish.allow, ...publisher.publish.allow]) {
    expect(subject).not.toMatch(/^(>|\$JS\.API\.>|\$JS\.API\.STREAM\.(CREATE|UPDATE|DELETE|PURGE))/);
  }
  expect(publisher.publish.allow.filter((subject) => subject.startsWith("dp."))).toEqual(["dp.msg.>"]);
  expect(worker.publish.allow).toContain("dp.group.billing.>");
  expect(worker.subscribe.allow).toEqual(["_INBOX_billing.>", "dp.hint.billing.>"]);
  expect(() => natsPermissions({ service: "", role: "worker" })).toThrow(/service/);
});
