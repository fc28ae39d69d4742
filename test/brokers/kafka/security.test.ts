import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Connection, createAclsV3, deleteTopicsV6 } from "@platformatic/kafka";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { kafka, kafkaPermissions, type KafkaOptions } from "../../../src/transports/kafka/index.ts";
import type { KafkaServer } from "../../support/brokers/kafka-server.ts";
import { aMessage } from "../../support/messages.ts";
import { eventually, Member, missing, newPrefix, ownServer, publish, createTransport } from "./harness.ts";

export interface Certificates {
  /** Whom to trust, in PEM. */
  readonly ca: string;
  /** For the broker: its certificate and key. */
  readonly keystore: string;
  readonly password: string;
  readonly remove: () => Promise<void>;
}

/** An authority that lives for one test, and a certificate of it for this name or address. */
export async function makeCertificates(subject = "IP:127.0.0.1"): Promise<Certificates> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-certificates-"));
  const openssl = (...args: string[]): Promise<unknown> =>
    promisify(execFile)("openssl", args, { cwd: folder });
  const key = ["-newkey", "rsa:2048", "-nodes"];
  const password = "for-a-test-only";
  await openssl(
    "req",
    "-x509",
    ...key,
    "-keyout",
    "ca.key",
    "-out",
    "ca.pem",
    "-days",
    "2",
    "-subj",
    "/CN=test ca",
  );
  await openssl("req", ...key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=kafka");
  await writeFile(join(folder, "names"), `subjectAltName=${subject}\n`);
  const signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"];
  await openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", ...signed);
  const both = ["-in", "server.pem", "-inkey", "server.key", "-certfile", "ca.pem"];
  await openssl("pkcs12", "-export", ...both, "-out", "server.p12", "-passout", `pass:${password}`);
  return {
    ca: await readFile(join(folder, "ca.pem"), "utf8"),
    keystore: join(folder, "server.p12"),
    password,
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

const alice = { username: "alice", password: "alice-s secret" };
const TOPIC = 2;
const GROUP = 3;
const PREFIXED = 4;
const ALLOW = 3;
const operationCodes = { Read: 3, Write: 4, Create: 5 };

describe.skipIf(missing)("security", () => {
  let certificates: Certificates;
  let server: KafkaServer;
  beforeAll(async () => {
    certificates = await makeCertificates();
    server = await ownServer({
      tls: certificates,
      users: { alice: alice.password, root: "root-secret" },
      superUsers: ["root"],
    });
  });
  afterAll(async () => {
    await server.stop();
    await certificates.remove();
  });

  const may = async (prefix: string): Promise<void> => {
    const connection = new Connection("test");
    const [host = "", port] = server.url.split(":");
    await connection.connect(host, Number(port));
    const rules = kafkaPermissions({ principal: "User:alice", prefix }).flatMap(({ operations, ...rule }) =>
      operations.map((operation) => ({
        resourceType: rule.resource === "topic" ? TOPIC : GROUP,
        resourceName: rule.prefix,
        resourcePatternType: PREFIXED,
        principal: rule.principal,
        host: "*",
        operation: operationCodes[operation],
        permissionType: ALLOW,
      })),
    );
    await createAclsV3.api.async(connection, rules as never);
    await connection.close();
  };

  const roundTrip = async (options: Partial<KafkaOptions>): Promise<void> => {
    const transport = createTransport(options);
    await transport.open();
    const member = await Member.of(transport);
    await publish(transport, aMessage({ id: "m" }));
    await (await member.got(1))[0]?.ack();
    expect(member.ids).toEqual(["m"]);
  };

  test.each(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const)(
    "B9: TLS and SASL %s",
    async (mechanism) => {
      const prefix = newPrefix();
      await may(prefix);
      const sasl = { mechanism, credentials: alice };
      await roundTrip({ prefix, brokers: [server.addresses.saslTls], tls: { ca: certificates.ca }, sasl });
    },
  );

  test("B9: credentials are asked for at each connect, so that a new password is found", async () => {
    const prefix = newPrefix();
    await may(prefix);
    let current = { ...alice, password: "the old one" };
    const transport = createTransport({
      prefix,
      brokers: [server.addresses.saslTls],
      tls: { ca: certificates.ca },
      sasl: { mechanism: "SCRAM-SHA-512", credentials: async () => current },
    });
    const refusal = await transport.open().then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(refusal).toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
    expect(JSON.stringify(refusal, Object.getOwnPropertyNames(refusal))).not.toContain("the old one");
    expect((await publish(transport, aMessage()))[0]?.kind).toBe("unreachable");
    current = alice;
    await expect.poll(async () => (await publish(transport, aMessage()))[0]?.kind).toBe("published");
  });

  test("SEC-30: an authority that was not configured is not trusted", async () => {
    const transport = createTransport({ brokers: [server.addresses.tls], tls: true });
    await expect(transport.open()).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
  });

  test("SEC-30: a certificate for another host is refused", async () => {
    const transport = createTransport({
      brokers: [server.addresses.tls],
      tls: { ca: certificates.ca, servername: "kafka.example" },
    });
    await expect(transport.open()).rejects.toThrow(/altnames|does not match/i);
  });

  test("SEC-34: reading, writing, retrying and burying need the prefix alone, and nothing of the cluster", async () => {
    const prefix = newPrefix();
    await may(prefix);
    const transport = createTransport({
      prefix,
      brokers: [server.addresses.sasl],
      sasl: { mechanism: "PLAIN", credentials: alice },
    });
    const member = await Member.of(transport, { from: "unclaimed", ordered: false });
    await publish(transport, aMessage({ id: "m" }));
    await (await member.got(1))[0]?.retry({ delayMs: 10, countsAsAttempt: true, error: "no" });
    const note = { error_type: "E", error_message: "", stack_trace: "", retry_count: "1", failed_at: "" };
    const rest = { source_topic: "t", consumer_group: "g", original_timestamp: "" };
    await (await member.got(2))[1]?.deadLetter?.({ ...note, ...rest });
    expect(await transport.depths?.(["events.order.placed"])).toBeInstanceOf(Map);
    const topics = [{ topic: "events.order.placed", kind: "event" }] as const;
    const planned = { service: "shop", group: "billing", ordered: false, topics };
    expect(await transport.lags?.([planned])).toMatchObject([{ waiting: expect.any(Number) }]);
    expect(member.consumption?.health()).toEqual({ ok: true });
  });

  test("SEC-34: off its prefix it neither writes, reads nor deletes, and no attempt is counted", async () => {
    const options = {
      brokers: [server.addresses.sasl],
      sasl: { mechanism: "PLAIN", credentials: alice },
    } as const;
    const stranger = kafka({ ...options, prefix: newPrefix(), warn: () => undefined });
    onTestFinished(() => stranger.close());
    expect((await publish(stranger, aMessage()))[0]?.kind).toBe("unreachable");
    const member = await Member.of(stranger);
    await eventually(() => member.consumption?.health().ok === false);
    expect(member.consumption?.health().detail).toMatch(/denied|authoriz/i);
    const mine = newPrefix();
    await may(mine);
    await publish(createTransport({ ...options, prefix: mine }), aMessage());
    const connection = new Connection("test", {
      sasl: { mechanism: "PLAIN", ...alice },
    });
    const [host = "", port] = server.addresses.sasl.split(":");
    await connection.connect(host, Number(port));
    onTestFinished(() => connection.close());
    const deleting = deleteTopicsV6.api.async(connection, [{ name: `${mine}events.order.placed` }], 5_000);
    await expect(deleting).rejects.toThrow();
  });
});
