import { execFile } from "node:child_process";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { murmur2 } from "../../../src/transports/kafka/publisher.ts";
import { kafkaJars } from "../../support/brokers/kafka-server.ts";
import { seededRandom } from "../../support/random-data.ts";
import { missing } from "./harness.ts";

const program = join(import.meta.dirname, "Murmur2Vectors.java");

async function hashesOfJava(keys: readonly string[]): Promise<number[]> {
  const jars = await kafkaJars();
  if ("missing" in jars) throw new Error(jars.missing);
  const output = await new Promise<string>((resolve, reject) => {
    const java = execFile("java", ["-cp", join(jars.folder, "*"), program], (error, stdout) =>
      error === null ? resolve(stdout) : reject(error),
    );
    java.stdin?.end(`${keys.join("\n")}\n`);
  });
  return output.trim().split("\n").map(Number);
}

describe.skipIf(missing)("the partitioner", () => {
  test("P-16: gives 10,000 keys the hash that Kafka's own producer gives them", async () => {
    const random = seededRandom(7);
    const letters = ["a", "7", "-", "ä", "語", "😀", " "];
    const keys = Array.from({ length: 10_000 }, () =>
      Array.from({ length: 1 + Math.floor(random() * 40) }, () => letters[Math.floor(random() * 7)]).join(""),
    );
    const own = keys.map((key) => murmur2(Buffer.from(key)));
    expect(own).toEqual(await hashesOfJava(keys));
  });
});
