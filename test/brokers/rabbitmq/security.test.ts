import { readFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "amqplib";
import { rabbitPermissions } from "sagabox/rabbitmq";
import { afterEach, describe, expect, test } from "vitest";
import { aMessage } from "../../support/messages.ts";
import { brokerUrl, closeAll, missing, ownPrefix, server, transport } from "./broker.ts";
import { Member, publish, publishIds, topic, until } from "./member.ts";

afterEach(closeAll);

const keep = (): undefined => undefined;

async function withUser(
  name: string,
  rights: { configure: string; write: string; read: string },
): Promise<string> {
  const ctl = server();
  await ctl.ctl("add_user", name, "secret");
  await ctl.ctl("set_permissions", "-p", "/", name, rights.configure, rights.write, rights.read);
  const url = new URL(brokerUrl);
  url.username = name;
  url.password = "secret";
  return url.href;
}

/** What the broker says when this account tries it. */
async function refusal(
  url: string,
  attempt: (
    channel: Awaited<ReturnType<Awaited<ReturnType<typeof connect>>["createChannel"]>>,
  ) => Promise<unknown>,
): Promise<string> {
  const connection = await connect(url);
  const channel = await connection.createChannel();
  channel.on("error", () => undefined);
  try {
    await attempt(channel);
    return "allowed";
  } catch (error) {
    return String(error);
  } finally {
    await connection.close();
  }
}

describe.skipIf(missing !== undefined)("security of RabbitMQ", () => {
  test("SEC-32, B9: with the generated rights everything works, and nothing beyond it", async () => {
    const prefix = ownPrefix();
    const orders = topic();
    const clicks = topic({ topic: "streams.clicks", kind: "stream", from: "beginning" });
    const reserve = topic({ topic: "commands.stock.reserve", kind: "command", from: "unclaimed" });
    const shopUrl = await withUser(
      `${prefix}-shop`,
      rabbitPermissions({ prefix, service: "shop", publishes: [orders, clicks, reserve] }),
    );
    const stockUrl = await withUser(
      `${prefix}-stock`,
      rabbitPermissions({
        prefix,
        service: "stock",
        consumes: [
          { group: "ordered", topics: [orders, clicks] },
          { group: "unordered", topics: [reserve], ordered: false },
        ],
      }),
    );
    const shop = transport({ prefix, url: shopUrl });
    const stock = transport({ prefix, url: stockUrl });
    await shop.open();
    const service = "stock";
    const ordered = await Member.of(stock, {
      service,
      group: "ordered",
      topics: [orders, clicks],
      receive: keep,
    });
    const unordered = await Member.of(stock, {
      service,
      group: "unordered",
      topics: [reserve],
      ordered: false,
    });
    const outcomes = await publish(
      shop,
      aMessage({ id: "order", key: "k" }),
      aMessage({ id: "click", topic: "streams.clicks", kind: "stream" }),
      aMessage({ id: "reserve", topic: "commands.stock.reserve", kind: "command" }),
    );
    expect(outcomes).toEqual(Array(3).fill({ kind: "published" }));
    await unordered.got(1);
    for (const delivery of await ordered.got(2))
      await delivery.retry({ delayMs: 100, countsAsAttempt: true, error: "x" });
    for (const delivery of (await ordered.got(4)).slice(2)) await delivery.deadLetter?.(note);
    expect(ordered.ids.slice(2).toSorted()).toEqual(["click", "order"]);

    const queue = `${prefix}.queue.stock.ordered:0`;
    const refused = [
      await refusal(shopUrl, (channel) => channel.deleteQueue(queue)),
      await refusal(shopUrl, (channel) => channel.assertQueue(`${prefix}.mine`)),
      await refusal(shopUrl, (channel) => channel.consume(queue, keep)),
      await refusal(shopUrl, (channel) => channel.bindQueue(queue, `${prefix}.event.order`, "#")),
      await refusal(stockUrl, (channel) => channel.assertExchange(`${prefix}.event.other`, "topic")),
      await refusal(stockUrl, (channel) => channel.assertQueue(`${prefix}.queue.shop.group`)),
      await refusal(stockUrl, (channel) => channel.get(`${prefix}.dlq.stock.ordered`)),
    ];
    for (const answer of refused) expect(answer).toContain("ACCESS_REFUSED");
    const elsewhere = new URL(stockUrl);
    elsewhere.pathname = "/another";
    await expect(connect(elsewhere.href)).rejects.toThrow();
  });

  test("SEC-32: a consumer without the rights gets an error at once", async () => {
    const prefix = ownPrefix();
    const url = await withUser(prefix, rabbitPermissions({ prefix, service: "shop", publishes: [topic()] }));
    await expect(Member.of(transport({ prefix, url }))).rejects.toMatchObject({
      code: "OPTIONS_INVALID",
      message: expect.stringContaining("ACCESS_REFUSED") as string,
    });
  });

  test("SEC-30: TLS with a known authority works; an unknown one or another name is refused", async () => {
    const { folder, tlsPort } = server();
    const ca = readFileSync(join(folder, "ca.pem"), "utf8");
    const secure = new URL(brokerUrl.replace("amqp:", "amqps:"));
    secure.port = String(tlsPort);
    const shop = transport({ url: secure.href, tls: { ca } });
    const member = await Member.of(shop);
    expect(await publishIds(shop, ["sealed"])).toEqual(["published"]);
    await member.got(1);
    await expect(transport({ url: secure.href }).open()).rejects.toThrow(/certificate/);
    const misnamed = transport({ url: secure.href, tls: { ca, servername: "broker.example" } });
    await expect(misnamed.open()).rejects.toThrow(/does not match certificate/);
  });

  test("B9: a virtual host is a broker of its own", async () => {
    const vhost = `${ownPrefix()}/käse`;
    await server().ctl("add_vhost", vhost);
    await server().ctl("set_permissions", "-p", vhost, "sagabox", ".*", ".*", ".*");
    const prefix = ownPrefix();
    const member = await Member.of(transport({ prefix, vhost }));
    const outside = transport({ prefix });
    await outside.open();
    expect(await publishIds(outside, ["outside"])).toEqual(["rejected"]);
    const inside = transport({ prefix, url: `${brokerUrl}/${encodeURIComponent(vhost)}` });
    await inside.open();
    expect(await publishIds(inside, ["inside"])).toEqual(["published"]);
    await member.got(1);
    await closeAll();
    await server().ctl("delete_vhost", vhost);
  });

  test("P-18, B9: a password that was changed is asked for again, and no attempt is counted meanwhile", async () => {
    const prefix = ownPrefix();
    const all = { configure: ".*", write: ".*", read: ".*" };
    await withUser(prefix, all);
    let password = "secret";
    const shop = transport({ prefix, credentials: () => ({ username: prefix, password }) });
    const member = await Member.of(shop);
    expect(await publishIds(shop, ["before"])).toEqual(["published"]);
    await server().ctl("change_password", prefix, "changed");
    await server().ctl("close_all_user_connections", prefix, "rotated");
    await until(() => member.consumption?.health().ok === false, "the refusal");
    expect(await publishIds(shop, ["between"])).toEqual(["unreachable"]);
    password = "changed";
    await until(async () => (await publishIds(shop, ["after"]))[0] === "published", "the new password");
    await until(() => member.ids.includes("after"), "what came afterwards");
  });
});

const note = {
  error_type: "Error",
  error_message: "no",
  stack_trace: "",
  retry_count: "1",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "events.order.placed",
  consumer_group: "ordered",
  original_timestamp: "2026-01-02T03:04:05.678901Z",
};
