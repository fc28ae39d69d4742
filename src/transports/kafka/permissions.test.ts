import { expect, test } from "vitest";
import { kafkaAclArguments, kafkaPermissions } from "./permissions.ts";

test("SEC-34: permissions cover only the prefix, and none is on the cluster", () => {
  const permissions = kafkaPermissions({ principal: "User:billing", prefix: "prod." });
  expect(kafkaAclArguments(permissions)).toEqual([
    "--allow-principal User:billing --operation Read --operation Write --operation Create --topic prod. --resource-pattern-type prefixed",
    "--allow-principal User:billing --operation Read --group prod. --resource-pattern-type prefixed",
  ]);
});

test("SEC-34: createTopics: false leaves out the permission to create", () => {
  const [topics] = kafkaPermissions({ principal: "User:b", prefix: "prod.", createTopics: false });
  expect(topics?.operations).toEqual(["Read", "Write"]);
});

test.each([
  [{ principal: "billing", prefix: "prod." }, "kafkaPermissions.principal"],
  [{ principal: "User:b", prefix: "" }, "kafkaPermissions.prefix"],
  [{ principal: "User:b", prefix: "." }, "must name the service"],
  [{ principal: "User:b", prefix: "*" }, "kafkaPermissions.prefix"],
])("%j is refused", (options, reason) => {
  expect(() => kafkaPermissions(options)).toThrow(reason);
});
