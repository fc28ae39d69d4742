// G6: the container file by itself, and a dry run of what it starts: unprivileged, on a root that cannot be written to.
import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { roleNames, rolesSql } from "../../src/admin/index.ts";
import { assertRequired } from "../support/brokers/broker-server.ts";
import { createDatabase, type TemporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";
import { dropRoles } from "../support/roles-harness.ts";
import { Image, instructionsIn } from "./support/containerfile.ts";
import { render } from "./support/kustomize.ts";
import { packedApp } from "./support/packed-app.ts";
import { findPod, listSecrets, type Container, type Pod } from "./support/pods.ts";
import { freePort } from "./support/prometheus-server.ts";
import { rootMissing, runInRoot } from "./support/read-only-root.ts";

const ops = fileURLToPath(new URL("../../ops", import.meta.url));
const text = readFileSync(join(ops, "container/Containerfile"), "utf8");
const image = new Image(text);
const resources = render(join(ops, "kubernetes/base"));

test("the base is pinned, no process is root, and build tools are not in the image", () => {
  const bases = instructionsIn(text).filter(({ word }) => word === "FROM");
  expect(bases).toHaveLength(2);
  for (const { value } of bases) expect(value).toMatch(/^node:\d+\.\d+\.\d+-bookworm-slim( AS build)?$/);
  expect(image.last("USER")).toBe("1000:1000");
  expect(image.last("STOPSIGNAL")).toBe("SIGTERM");
  expect(image.last("RUN")).toMatch(/^rm -rf .*\/npm .*corepack/);
  expect(instructionsIn(text).filter(({ word }) => word === "ADD")).toEqual([]);
  expect(image.list("ENTRYPOINT")[0]).toBe("node");
});

test("the image starts what the deployment says, where the deployment says", () => {
  const [command, args] = [image.list("CMD"), container(podIn("Deployment", "sagabox-worker")).args];
  expect(args.slice(0, command.length)).toEqual(command);
  expect(image.environment).toMatchObject({ SAGABOX_HOST: "0.0.0.0", SAGABOX_PORT: "8000" });
  expect(image.last("EXPOSE")).toBe("8000");
});

const missing = rootMissing();
if (missing !== undefined) assertRequired("read-only root", missing);

describe.skipIf(missing !== undefined)("as uid 1000 on a read-only root", () => {
  let database: TemporaryDatabase;
  let made = { folder: "", app: "" };
  const logins = { "database-url": "hand", "owner-database-url": "keeper" };
  const prefixName = (name: string): string => `${database.name}_${name}`;

  // Two logins, as in production: the owner's, which may make a schema, and one that may do nothing yet.
  beforeAll(async () => {
    database = await createDatabase();
    made = packedApp(program);
    for (const login of Object.values(logins))
      await database.pool.query(`create role "${prefixName(login)}" login password 'x'`);
    await database.pool.query(`grant create on database "${database.name}" to "${prefixName("keeper")}"`);
  });

  afterAll(async () => {
    const roles = [...roleNames, ...Object.values(logins)].map(prefixName);
    await database.drop();
    await dropRoles(roles);
    rmSync(made.folder, { recursive: true, force: true });
  });

  /** The files that a pod mounts, and no others. */
  function secretsFor(pod: Pod): string {
    const folder = mkdtempSync(join(made.folder, "secrets-"));
    chmodSync(folder, 0o755);
    for (const name of listSecrets(pod)) {
      const url = new URL(database.url);
      [url.username, url.password] = [prefixName(logins[name as keyof typeof logins]), "x"];
      writeFileSync(join(folder, name), url.href);
    }
    return folder;
  }

  function start(pod: Pod, more: Record<string, string> = {}) {
    const { args, env = [], envFrom } = container(pod);
    const wanted = env.filter(({ valueFrom }) => valueFrom?.configMapKeyRef?.optional !== true);
    const given = wanted.map(({ name, value = "worker-0" }) => [name, value] as const);
    const shared = envFrom === undefined ? {} : config();
    const child = runInRoot({
      app: made.app,
      secrets: secretsFor(pod),
      user: image.last("USER"),
      command: [...image.list("ENTRYPOINT"), ...args],
      env: { ...image.environment, ...shared, ...Object.fromEntries(given), ...more },
    });
    let output = "";
    child.stdout?.on("data", (chunk: Buffer) => (output += chunk.toString()));
    child.stderr?.on("data", (chunk: Buffer) => (output += chunk.toString()));
    const ended = once(child, "close").then(([code]) => ({ code: code as number | null, output }));
    onTestFinished(async () => {
      child.kill("SIGKILL");
      await ended;
    });
    return { child, ended, said: () => output };
  }

  test("the migration job makes the tables, and the script of the roles shares them out", async () => {
    const { code, output } = await start(podIn("Job")).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
    await database.pool.query(
      rolesSql({ schema: "sagabox", prefix: prefixName(""), extras: ["optimistic"] }) +
        `grant "${prefixName("owner")}" to "${prefixName("keeper")}"; grant "${prefixName("worker")}" to "${prefixName("hand")}"`,
    );
  });

  test.each([
    ["sagabox-worker", "database-url"],
    ["sagabox-upkeep", "owner-database-url"],
  ])("%s gets ready with %s alone, cannot write to its root, and ends well", async (name, secret) => {
    const port = String(await freePort());
    const { child, ended, said } = start(podIn("Deployment", name), { SAGABOX_PORT: port });
    const answer = () => fetch(`http://127.0.0.1:${port}/health/ready`).catch(() => undefined);
    await until(async () => (await answer())?.status === 200 || child.exitCode !== null, 30_000);
    expect((await answer())?.status, said()).toBe(200);
    expect(said()).toContain(
      `{"uid":1000,"gid":1000,"groups":[1000],"worker":"worker-0","secrets":["${secret}"],` +
        '"root":"EROFS","app":"EROFS","tmp":"written"}',
    );
    expect(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()).toContain("sagabox_build_info");
    child.kill("SIGTERM");
    const { code, output } = await ended;
    expect([code, output]).toEqual([0, expect.not.stringContaining("permission denied")]);
  });

  test("the upkeep is refused where it has the login of the workers", async () => {
    const pod = podIn("Deployment", "sagabox-worker");
    const { args: upkeep } = container(podIn("Deployment", "sagabox-upkeep"));
    const wrong = { ...pod, containers: [{ ...container(pod), args: upkeep }] };
    const { code, output } = await start(wrong, { SAGABOX_PORT: String(await freePort()) }).ended;
    expect([code === 0, output]).toEqual([false, expect.stringContaining("cannot do the upkeep")]);
  });

  test.each(["sagabox-archive", "sagabox-inbox-cleanup"])("the cron job %s does its work", async (name) => {
    const { code, output } = await start(podIn("CronJob", name)).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
  });
});

const program = `
import { readdirSync, writeFileSync } from "node:fs";
import { createBus } from "sagabox";
const tried = (path) => { try { writeFileSync(path, ""); return "written"; } catch (error) { return error.code; } };
const { WORKER_ID: worker } = process.env;
console.log(JSON.stringify({ uid: process.getuid(), gid: process.getgid(), groups: process.getgroups(), worker,
  secrets: readdirSync("/run/secrets/sagabox"),
  root: tried("/x"), app: tried("/app/x"), tmp: tried("/tmp/x") }));
export const bus = createBus({ service: "image" });
`;

function podIn(kind: string, name?: string): Pod {
  const [found] = resources.filter(
    (resource) => resource.kind === kind && (name === undefined || resource.metadata.name === name),
  );
  const pod = found === undefined ? undefined : findPod(found);
  if (pod === undefined) throw new Error(`there is no ${kind} ${name ?? ""}`);
  return pod;
}

function container({ containers }: Pod): Container {
  const [first] = containers;
  if (first === undefined) throw new Error("there is no container");
  return first;
}

function config(): Record<string, string> {
  return resources.find(({ kind }) => kind === "ConfigMap")?.["data"] as Record<string, string>;
}
