// G6: the container file by itself, and a dry run of what it starts: unprivileged, on a root that cannot be written to.
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { assertRequired } from "../support/brokers/broker-server.ts";
import { createDatabase, type TemporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";
import { Image, instructionsIn } from "./support/containerfile.ts";
import { render } from "./support/kustomize.ts";
import { packedApp } from "./support/packed-app.ts";
import { podOf, type Container } from "./support/pods.ts";
import { freePort } from "./support/prometheus-server.ts";
import { rootMissing, runInRoot } from "./support/read-only-root.ts";

const ops = fileURLToPath(new URL("../../ops", import.meta.url));
const text = readFileSync(join(ops, "container/Containerfile"), "utf8");
const image = new Image(text);
const resources = render(join(ops, "kubernetes/base"));

test("the base is pinned, nobody is root, and what installs is not in the image", () => {
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
  expect(image.list("CMD")).toEqual(container("Deployment").args);
  expect(image.environment).toMatchObject({ SAGABOX_HOST: "0.0.0.0", SAGABOX_PORT: "8000" });
  expect(image.last("EXPOSE")).toBe("8000");
});

const missing = rootMissing();
if (missing !== undefined) assertRequired("read-only root", missing);

describe.skipIf(missing !== undefined)("as uid 1000 on a read-only root", () => {
  let database: TemporaryDatabase;
  let made = { folder: "", app: "" };

  beforeAll(async () => {
    database = await createDatabase();
    made = packedApp(program);
    const secrets = join(made.folder, "secrets");
    mkdirSync(secrets);
    for (const name of ["database-url", "owner-database-url"])
      writeFileSync(join(secrets, name), database.url);
  });

  afterAll(async () => {
    await database.drop();
    rmSync(made.folder, { recursive: true, force: true });
  });

  function start({ args, env = [] }: Container, more: Record<string, string> = {}) {
    const named = env.filter(({ valueFrom }) => valueFrom?.configMapKeyRef?.optional !== true);
    const given = named.map(({ name, value = "worker-0" }) => [name, value] as const);
    const child = runInRoot({
      app: made.app,
      secrets: join(made.folder, "secrets"),
      user: image.last("USER"),
      command: [...image.list("ENTRYPOINT"), ...args],
      env: { ...image.environment, ...Object.fromEntries(given), ...more },
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

  test("the migration job makes the tables", async () => {
    const { code, output } = await start(container("Job")).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
  });

  test("the worker gets ready, cannot write to its root, and ends well when told to", async () => {
    const port = String(await freePort());
    const { child, ended, said } = start(container("Deployment"), { ...config(), SAGABOX_PORT: port });
    const answer = () => fetch(`http://127.0.0.1:${port}/health/ready`).catch(() => undefined);
    await until(async () => (await answer())?.status === 200 || child.exitCode !== null, 30_000);
    expect((await answer())?.status, said()).toBe(200);
    expect(said()).toContain(
      '{"uid":1000,"gid":1000,"groups":[1000],"worker":"worker-0","root":"EROFS","app":"EROFS","tmp":"written"}',
    );
    expect(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()).toContain("sagabox_build_info");
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0 });
  });

  test.each(["sagabox-archive", "sagabox-inbox-cleanup"])("the cron job %s does its work", async (name) => {
    const { code, output } = await start(container("CronJob", name)).ended;
    expect({ code, output }).toMatchObject({ code: 0 });
  });
});

const program = `
import { writeFileSync } from "node:fs";
import { createBus } from "sagabox";
const tried = (path) => { try { writeFileSync(path, ""); return "written"; } catch (error) { return error.code; } };
const { WORKER_ID: worker } = process.env;
console.log(JSON.stringify({ uid: process.getuid(), gid: process.getgid(), groups: process.getgroups(), worker,
  root: tried("/x"), app: tried("/app/x"), tmp: tried("/tmp/x") }));
export const bus = createBus({ service: "image" });
`;

function container(kind: string, name?: string): Container {
  const [found] = resources.filter(
    (resource) => resource.kind === kind && (name === undefined || resource.metadata.name === name),
  );
  const [first] = (found === undefined ? undefined : podOf(found))?.containers ?? [];
  if (first === undefined) throw new Error(`there is no ${kind}`);
  return first;
}

function config(): Record<string, string> {
  return resources.find(({ kind }) => kind === "ConfigMap")?.["data"] as Record<string, string>;
}
