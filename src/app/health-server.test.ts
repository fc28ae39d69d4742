import { connect, type Socket } from "node:net";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { HealthServer, type HealthServerOptions } from "./health-server.ts";

async function setup(options: Partial<HealthServerOptions> = {}) {
  const ready = async () => ({ ok: true, checks: { database: true } });
  const server = new HealthServer({ port: 0, ready, ...options });
  onTestFinished(() => server.stop());
  await server.start();
  const get = (path: string, method = "GET") => fetch(`http://127.0.0.1:${server.port}${path}`, { method });
  return { server, get };
}

test("G1: liveness answers although readiness never does", async () => {
  const { get } = await setup({ ready: () => new Promise(() => undefined), readyDeadlineMs: 20 });
  const live = await get("/health/live");
  expect([live.status, await live.json()]).toEqual([200, { status: "ok" }]);
  const ready = await get("/health/ready");
  expect([ready.status, await ready.json()]).toEqual([503, { status: "unavailable", checks: {} }]);
});

test("G1: readiness tells which check failed and nothing about why", async () => {
  const { get } = await setup({
    ready: async () => ({ ok: false, checks: { database: false, relay: true } }),
  });
  const response = await get("/health/ready");
  expect(response.status).toBe(503);
  expect(await response.json()).toEqual({
    status: "unavailable",
    checks: { database: "failed", relay: "ok" },
  });
});

test("G1: a check that failed and is not needed makes the process degraded, not unready", async () => {
  const { get } = await setup({
    ready: async () => ({ ok: true, checks: { database: true, replies: false } }),
  });
  const response = await get("/health/ready");
  expect([response.status, await response.json()]).toEqual([
    200,
    { status: "degraded", checks: { database: "ok", replies: "failed" } },
  ]);
});

test("a readiness check that throws means not ready, and its text stays inside", async () => {
  const { get } = await setup({ ready: () => Promise.reject(new Error("password=canary-1")) });
  const response = await get("/health/ready");
  expect(response.status).toBe(503);
  expect(await response.text()).not.toContain("canary-1");
});

test("a hundred probes at once ask the database once, and again after the answer is old", async () => {
  let asked = 0;
  const time = { ms: 0 };
  const clock = { wallMs: () => 0, monotonicMs: () => time.ms };
  const ready = async () => ({ ok: ++asked < 2, checks: {} });
  const { get } = await setup({ ready, clock });
  const first = await Promise.all(Array.from({ length: 100 }, () => get("/health/ready")));
  expect(new Set(first.map((response) => response.status))).toEqual(new Set([200]));
  expect(asked).toBe(1);
  time.ms = 1_000;
  expect((await get("/health/ready")).status).toBe(503);
  expect(asked).toBe(2);
});

test("G1: metrics are served with their content type, and are absent when there are none", async () => {
  const { get } = await setup({
    metrics: { contentType: "text/plain; version=0.0.4", text: () => "up 1\n" },
  });
  const response = await get("/metrics?format=text");
  expect([response.status, response.headers.get("content-type")]).toEqual([200, "text/plain; version=0.0.4"]);
  expect(await response.text()).toBe("up 1\n");
  const without = await setup();
  expect((await without.get("/metrics")).status).toBe(404);
});

test("a metrics page that cannot be made is a 500 without details", async () => {
  const text = () => {
    throw new Error("canary-2");
  };
  const { get } = await setup({ metrics: { contentType: "text/plain", text } });
  const response = await get("/metrics");
  expect([response.status, await response.json()]).toEqual([500, { status: "failed" }]);
});

test.each(["/", "/health", "/health/live/", "/__proto__", "/constructor", "//health/live"])(
  "%s does not exist",
  async (path) => {
    const { get } = await setup();
    expect((await get(path)).status).toBe(404);
  },
);

test.each(["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])("%s is not allowed", async (method) => {
  const { get } = await setup();
  const response = await get("/health/live", method);
  expect([response.status, response.headers.get("allow")]).toEqual([405, "GET, HEAD"]);
});

test("HEAD gets the headers alone", async () => {
  const { get } = await setup();
  const response = await get("/health/live", "HEAD");
  expect([response.status, await response.text()]).toEqual([200, ""]);
});

test("headers beyond eight kilobytes are refused and the server lives on", async () => {
  const { server, get } = await setup();
  const socket = connect(server.port ?? 0, "127.0.0.1");
  socket.on("error", () => undefined);
  socket.write(`GET /health/live HTTP/1.1\r\nhost: x\r\nx-long: ${"y".repeat(20_000)}\r\n\r\n`);
  socket.resume();
  await once(socket, "close");
  expect((await get("/health/live")).status).toBe(200);
});

test("it listens on loopback unless told otherwise", async () => {
  const { server } = await setup();
  const outside = connect(server.port ?? 0, "127.0.0.2");
  await expect(once(outside, "connect")).rejects.toMatchObject({ code: "ECONNREFUSED" });
});

test("G1: a taken port is a typed error that names the variable, and a later start can succeed", async () => {
  const { server } = await setup();
  const port = server.port ?? 0;
  const second = new HealthServer({ port, ready: async () => ({ ok: true, checks: {} }) });
  onTestFinished(() => second.stop());
  await expect(second.start()).rejects.toMatchObject({
    code: "LISTEN_FAILED",
    message: expect.stringMatching(/in use.*SAGABOX_PORT/),
  });
  await server.stop();
  await second.start();
  expect(second.port).toBe(port);
});

test("an address of another machine is a typed error", async () => {
  const server = new HealthServer({
    host: "192.0.2.1",
    port: 0,
    ready: async () => ({ ok: true, checks: {} }),
  });
  await expect(server.start()).rejects.toMatchObject({ code: "LISTEN_FAILED" });
});

test("starting twice, stopping twice and stopping before the start are harmless", async () => {
  const server = new HealthServer({ port: 0, ready: async () => ({ ok: true, checks: {} }) });
  await server.stop();
  await Promise.all([server.start(), server.start()]);
  const stopped = server.start().then(() => Promise.all([server.stop(), server.stop()]));
  await stopped;
  expect(server.port).toBeUndefined();
  await server.start();
  expect(server.port).toBeGreaterThan(0);
  await server.stop();
});

test("a client that keeps its connection open does not hold up the stop", async () => {
  const { server } = await setup();
  const socket = connect(server.port ?? 0, "127.0.0.1");
  await once(socket, "connect");
  socket.write("GET /health/live HTTP/1.1\r\nhost: x\r\n");
  const closed = once(socket, "close");
  socket.resume();
  await server.stop();
  await closed;
  expect(server.port).toBeUndefined();
});

/** Opens sockets, writes `text` on each and reads nothing. Resolves when all are connected. */
async function strangers(count: number, port: number, text: string): Promise<readonly Socket[]> {
  const sockets = Array.from({ length: count }, () => connect(port, "127.0.0.1"));
  onTestFinished(() => sockets.forEach((socket) => socket.destroy()));
  await Promise.all(
    sockets.map(async (socket) => {
      socket.on("error", () => undefined).pause();
      await once(socket, "connect");
      if (text !== "") socket.write(text);
    }),
  );
  return sockets;
}

const half = "GET /health/live HTTP/1.1\r\nhost: x\r\n";

test.each([
  ["110 sockets that send nothing", 110, ""],
  ["110 sockets that never end their header", 110, half],
  ["1,000 sockets that send nothing", 1_000, ""],
  ["1,000 sockets that never end their header", 1_000, half],
  ["1,000 sockets that do not read their answer", 1_000, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"],
  ["1,000 sockets that keep their connection", 1_000, `${half}\r\n`],
])("G1: %s do not keep a probe from its answer", { timeout: 60_000 }, async (_, count, text) => {
  const page = "# a line of metrics\n".repeat(50_000);
  const { server, get } = await setup({ metrics: { contentType: "text/plain", text: () => page } });
  await strangers(count, server.port ?? 0, text);
  for (let n = 0; n < 5; n++) {
    expect((await get("/health/live")).status).toBe(200);
    expect((await get("/health/ready")).status).toBe(200);
  }
});

test("G1: a thousand probes at once are all answered, although strangers hold connections", async () => {
  const { server, get } = await setup();
  await strangers(1_000, server.port ?? 0, half);
  for (let n = 0; n < 20; n++) {
    const answers = await Promise.all(Array.from({ length: 50 }, () => get("/health/live")));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
  }
});

test("a client that does not read its answer is cut off in the end", { timeout: 60_000 }, async () => {
  const page = "# a line of metrics\n".repeat(1_000_000); // more than the buffers of a socket take
  const { server } = await setup({
    metrics: { contentType: "text/plain", text: () => page },
    answerDeadlineMs: 50,
  });
  const [socket] = await strangers(1, server.port ?? 0, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
  await expect.poll(() => server.connections, { timeout: 30_000 }).toBe(0);
  expect(socket?.destroyed).toBe(false); // it was the server that hung up
});

test(
  "a client that sends many requests and reads no answer makes one page",
  { timeout: 60_000 },
  async () => {
    const page = "# a line of metrics\n".repeat(1_000_000); // more than the buffers of a socket take
    let pages = 0;
    const text = (): string => {
      pages += 1;
      return page;
    };
    const { server } = await setup({ metrics: { contentType: "text/plain", text }, answerDeadlineMs: 50 });
    await strangers(1, server.port ?? 0, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10));
    await expect.poll(() => pages).toBeGreaterThan(0);
    await expect.poll(() => server.connections, { timeout: 30_000 }).toBe(0);
    expect(pages).toBe(1);
  },
);

test("a client that sends more requests than the server lets wait is cut off at once", async () => {
  const { server } = await setup({ answerDeadlineMs: 600_000 });
  const one = "GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n";
  const [few, many] = await Promise.all([
    strangers(1, server.port ?? 0, one.repeat(20)),
    strangers(1, server.port ?? 0, one.repeat(21)),
  ]);
  await expect.poll(() => server.connections).toBe(1);
  const [socket] = few;
  socket?.resume();
  await once(socket as Socket, "data");
  expect(many[0]?.destroyed).toBe(false); // it was the server that hung up
});

test("requests sent at once on one connection are answered in their order", async () => {
  const { server } = await setup({ metrics: { contentType: "text/plain", text: () => "up 1\n" } });
  const asked = ["/metrics", "/health/live", "/nothing", "/metrics"];
  const requests = asked.map((path) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
  const [socket] = await strangers(1, server.port ?? 0, requests.join(""));
  let answers = "";
  socket?.on("data", (bytes) => (answers += String(bytes))).resume();
  const bodies = (): readonly string[] => answers.match(/up 1|"ok"|"not found"/g) ?? [];
  await expect.poll(bodies).toEqual(["up 1", '"ok"', '"not found"', "up 1"]);
});
