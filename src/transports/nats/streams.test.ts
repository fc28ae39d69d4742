import { expect, test } from "vitest";
import { natsSettings } from "./options.ts";
import { findFeatures, streamConfigs } from "./streams.ts";

test("B4: streams use file storage, reject messages when full, and record their number of partitions", () => {
  const configs = streamConfigs(
    natsSettings({ partitions: 16, replicas: 3, maxStreamBytes: 1_000 }),
    "2.9.10",
  );
  expect(configs.map(({ name }) => name)).toEqual(["dp_messages", "dp_retries", "dp_dead", "dp_groups"]);
  for (const config of configs) {
    expect(config).toMatchObject({
      storage: "file",
      num_replicas: 3,
      description: "sagabox, partitions: 16",
    });
  }
  expect(configs[0]).toMatchObject({ discard: "new", max_bytes: 1_000, subjects: ["dp.msg.>"] });
});

test("B4: features that the server version lacks are not requested", () => {
  const isCompressed = (version: string): boolean =>
    streamConfigs(natsSettings({ compress: true }), version).every(({ compression }) => compression === "s2");
  expect(["2.9.10", "2.10.0", "2.11.3-beta", "3.0.0"].map(isCompressed)).toEqual([false, true, true, true]);
  expect(findFeatures("unknown")).toEqual({ compression: false });
});
