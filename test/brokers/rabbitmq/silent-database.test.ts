import { describe, test } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { expectTakeOverAndReturn } from "../../support/silent-database.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("a silent database", () => {
  test("a worker that cannot reach its database leaves its messages to others and comes back by itself", async () => {
    const prefix = ownPrefix();
    await expectTakeOverAndReturn(() => rabbitmq({ url: brokerUrl, prefix, rebalanceInterval: "200ms" }));
  }, 240_000);
});
