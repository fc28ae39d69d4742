// G6: the manifests in ops/kubernetes, built offline and held against Kubernetes' own schemas.
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";
import { describe, expect, test } from "vitest";
import { schemaProblem, unknownFields } from "./support/kubernetes-schemas.ts";
import { render, type Resource } from "./support/kustomize.ts";
import { findPod, podProblems, listSecrets, type Pod } from "./support/pods.ts";

const root = fileURLToPath(new URL("../../ops/kubernetes", import.meta.url));
const overlays = readdirSync(join(root, "overlays")).map((name) => join("overlays", name));
const folders = ["base", ...overlays];
const all = folders.flatMap((folder) => render(join(root, folder)));

describe.each(folders)("%s", (folder) => {
  const resources = render(join(root, folder));

  test("is valid by the Kubernetes schemas", async () => {
    for (const resource of resources)
      expect({ [resource.kind]: await schemaProblem(resource) }).toEqual({ [resource.kind]: undefined });
  });

  test("asks for nothing that pod security forbids", () => {
    const pods = resources.flatMap((resource) => findPod(resource) ?? []);
    expect(pods).toHaveLength(5);
    expect(pods.flatMap(podProblems)).toEqual([]);
  });

  test("mounts only secrets that its ExternalSecret makes", () => {
    const made = resources.filter(({ kind }) => kind === "ExternalSecret").flatMap(secretKeys);
    const mounted = resources.flatMap((resource) => findPod(resource) ?? []).flatMap(listSecrets);
    if (made.length > 0) expect([...new Set(mounted)].toSorted()).toEqual(made.toSorted());
    else expect(folder).toBe("overlays/dev");
  });

  test("gives each pod the secrets that it reads, and no others", () => {
    const config = resources.filter(({ kind }) => kind === "ConfigMap");
    const readBy = (pod: Pod): string[] => {
      const shared = pod.containers.some(({ envFrom }) => envFrom !== undefined) ? config : [];
      const text = JSON.stringify([pod.containers, shared]);
      return [
        ...new Set([...text.matchAll(/\/run\/secrets\/sagabox\/([\w-]+)/g)].map(([, name = ""]) => name)),
      ];
    };
    for (const pod of resources.flatMap((resource) => findPod(resource) ?? []))
      expect(listSecrets(pod).toSorted()).toEqual(readBy(pod).toSorted());
  });

  test.runIf(hasKubectl())("is what kubectl builds", () => {
    const text = execFileSync("kubectl", ["kustomize", join(root, folder)], { encoding: "utf8" });
    const real = parseAllDocuments(text).map((document) => document.toJS() as Resource);
    expect(byName(resources)).toEqual(byName(real));
  });
});

test("no resource has a field that its kind does not have", { timeout: 60_000 }, () => {
  expect(unknownFields(all)).toBe("");
});

test("a misspelt field, a wrong type and a lax pod would be found", { timeout: 60_000 }, async () => {
  const [deployment] = all.filter(({ kind }) => kind === "Deployment");
  const worse = structuredClone(deployment) as Resource & { spec: Record<string, unknown> };
  worse.spec["replicaz"] = 3;
  expect(unknownFields([worse])).toContain("replicaz");
  worse.spec["replicas"] = "three";
  expect(await schemaProblem(worse)).toContain("must be integer");
  expect(podProblems({ containers: [{ name: "x", image: "y:latest", args: [] }] })).toHaveLength(11);
});

function secretKeys({ spec }: Resource): string[] {
  const { data } = spec as { data: readonly { secretKey: string }[] };
  return data.map(({ secretKey }) => secretKey);
}

function byName(resources: readonly Resource[]): Record<string, Resource> {
  return Object.fromEntries(
    resources.map((resource) => [`${resource.kind} ${resource.metadata.name}`, resource]),
  );
}

function hasKubectl(): boolean {
  try {
    execFileSync("kubectl", ["kustomize", "--help"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
