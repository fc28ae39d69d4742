import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Resource } from "./kustomize.ts";

const modules = fileURLToPath(new URL("../../../node_modules", import.meta.url));

interface Model {
  new (data: object): { validate(): void };
}

/** What the Kubernetes schema of its kind says against a resource: wrong types, missing fields, unknown values. */
export async function schemaProblem(resource: Resource): Promise<string | undefined> {
  const exported = (await import(findModel(resource))) as Record<string, Model>;
  const model = exported[resource.kind];
  if (model === undefined) throw new Error(`there is no schema for ${resource.kind}`);
  try {
    new model(resource).validate();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/**
 * Fields that their kind does not have. The schemas let them pass, but the types made from the same source do not: the
 * compiler refuses a literal with a property too many.
 */
export function unknownFields(resources: readonly Resource[]): string {
  const cache = join(modules, ".cache");
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "sagabox-manifests-"));
  try {
    writeFileSync(join(folder, "manifests.ts"), asTypeScript(resources));
    writeFileSync(
      join(folder, "tsconfig.json"),
      JSON.stringify({ compilerOptions, files: ["manifests.ts"] }),
    );
    execFileSync(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", folder, "--pretty", "false"], {
      encoding: "utf8",
      stdio: "pipe",
    });
    return "";
  } catch (error) {
    return String((error as { stdout?: string }).stdout ?? error);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const compilerOptions = {
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  target: "es2023",
  module: "nodenext",
  types: [],
};

function asTypeScript(resources: readonly Resource[]): string {
  const lines = resources.map((resource, index) => {
    const type = `import("${findModel(resource)}").I${resource.kind}`;
    return `export const r${index} = ${JSON.stringify(resource)} satisfies ${type};`;
  });
  return `${lines.join("\n")}\n`;
}

function findModel({ apiVersion, kind }: Resource): string {
  const home = apiVersion.startsWith("external-secrets.io/")
    ? "@kubernetes-models/external-secrets"
    : "kubernetes-models";
  return `${home}/${apiVersion}/${kind}`;
}
