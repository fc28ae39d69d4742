import { describe, expect, test } from "vitest";
import { natsPermissions } from "../../../src/transports/nats/index.ts";
import { aMessage } from "../../support/messages.ts";
import { missing, openTransport, ownServer, publish } from "./harness.ts";

describe.skipIf(missing)("a subject that NATS denies", () => {
  test("SEC-33, B10: answers long before its time is over, and its neighbours go through", async () => {
    const { publish: may, subscribe } = natsPermissions({ service: "web", role: "publisher" });
    const allow = may.allow.map((subject) => (subject === "dp.msg.>" ? "dp.msg.open.>" : subject));
    const permissions = JSON.stringify({ publish: { allow }, subscribe });
    const server = await ownServer({
      config: `authorization { users: [
        { user: admin, password: a },
        { user: web, password: b, permissions: ${permissions} },
      ] }`,
    });
    const servers = server.url;
    await (await openTransport({ servers, credentials: { user: "admin", password: "a" } })).close();
    const sender = await openTransport({
      servers,
      credentials: { user: "web", password: "b" },
      timeout: "60s",
    });
    const outcomes = await publish(
      sender,
      aMessage({ topic: "open" }),
      aMessage({ topic: "closed" }),
      aMessage({ topic: "open" }),
    );
    expect(outcomes.map(({ kind }) => kind)).toEqual(["published", "unreachable", "published"]);
  });
});
