import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ClientLoader } from "./client-package.ts";

// A copy of the sources in a directory from which none of the optional packages can be resolved.
let bare: string;
beforeAll(async () => {
  bare = await mkdtemp(join(tmpdir(), "sagabox-bare-"));
  await cp(join(import.meta.dirname, ".."), join(bare, "src"), { recursive: true });
  await writeFile(join(bare, "package.json"), '{ "type": "module", "version": "0.0.0" }');
});
afterAll(() => rm(bare, { recursive: true, force: true }));

async function opening(room: string, make: string): Promise<unknown> {
  const script = join(bare, `${room}.ts`);
  await writeFile(
    script,
    `import { ${room} } from "./src/transports/${room}/index.ts";
     const transport = ${make};
     const failure = await transport.open().catch((error) => error);
     console.log(JSON.stringify({ name: failure.name, code: failure.code, message: failure.message }));
     await transport.close();`,
  );
  const { stdout } = await promisify(execFile)(process.execPath, [
    "--import",
    import.meta.resolve("tsx"),
    script,
  ]);
  return JSON.parse(stdout);
}

test.each([
  ["rabbitmq", 'rabbitmq({ url: "amqp://127.0.0.1:1" })', "RabbitMQ", "amqplib@2"],
  ["kafka", 'kafka({ brokers: ["127.0.0.1:1"] })', "Kafka", "@platformatic/kafka@1"],
  ["nats", 'nats({ servers: "127.0.0.1:1" })', "NATS", "@nats-io/transport-node@3 @nats-io/jetstream@3"],
])(
  "opening %s without its client fails with the command that installs it",
  async (room, make, broker, install) => {
    expect(await opening(room, make)).toEqual({
      name: "SagaboxError",
      code: "TRANSPORT_CLIENT_MISSING",
      message: `The client for ${broker} is not installed. Run: npm install ${install}`,
    });
  },
);

test("a client with a missing dependency is not reported as missing, and loading is retried", async () => {
  const broken = Object.assign(new Error("Cannot find package 'its-own' imported from amqplib"), {
    code: "ERR_MODULE_NOT_FOUND",
  });
  let tries = 0;
  const loader = new ClientLoader({
    broker: "RabbitMQ",
    install: ["amqplib@2"],
    load: () => (++tries === 1 ? Promise.reject(broken) : Promise.resolve({ tries })),
  });
  expect(() => loader.client).toThrow("was not loaded yet");
  await expect(loader.load()).rejects.toBe(broken);
  expect([await loader.load(), await loader.load(), loader.client]).toEqual(Array(3).fill({ tries: 2 }));
});
