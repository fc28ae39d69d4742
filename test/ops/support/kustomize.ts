import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { parse, parseAllDocuments } from "yaml";
import { applyPatch, type Operation } from "./json-patch.ts";

export interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { name: string; namespace?: string; readonly labels?: Readonly<Record<string, string>> };
  readonly [field: string]: unknown;
}

interface Kustomization {
  readonly namespace?: string;
  readonly resources?: readonly string[];
  readonly components?: readonly string[];
  readonly images?: readonly { name: string; newName: string; newTag: string }[];
  readonly patches?: readonly { target: { kind: string; name: string }; patch: string }[];
}

const KNOWN = ["apiVersion", "kind", "namespace", "resources", "components", "images", "patches"];
const UNSPACED = ["Namespace"];

/**
 * Builds a kustomization offline, as far as ours go: resources, components, JSON patches, deletions, images and the
 * namespace. Anything else is refused, so that no file can rely on what is not built here. Where kubectl is installed, a
 * test compares this with what it builds.
 */
export function render(folder: string): Resource[] {
  return buildFolder(folder, []);
}

function buildFolder(folder: string, given: readonly Resource[]): Resource[] {
  const kustomization = parse(readFileSync(join(folder, "kustomization.yaml"), "utf8")) as Kustomization;
  const strange = Object.keys(kustomization).filter((key) => !KNOWN.includes(key));
  if (strange.length > 0) throw new Error(`${folder}: ${strange.join(", ")} cannot be built here`);
  const own = (kustomization.resources ?? []).flatMap((path) => loadResources(join(folder, path)));
  let resources = [...given, ...own];
  for (const path of kustomization.components ?? []) resources = buildFolder(join(folder, path), resources);
  for (const { target, patch } of kustomization.patches ?? [])
    resources = applyPatches(resources, target, patch);
  for (const image of kustomization.images ?? []) resources.forEach((resource) => setImage(resource, image));
  const { namespace } = kustomization;
  return namespace === undefined ? resources : resources.map((resource) => setNamespace(resource, namespace));
}

function loadResources(path: string): Resource[] {
  if (statSync(path).isDirectory()) return render(path);
  return parseAllDocuments(readFileSync(path, "utf8")).map((document) => document.toJS() as Resource);
}

function applyPatches(
  resources: Resource[],
  { kind, name }: { kind: string; name: string },
  patch: string,
): Resource[] {
  const aimedAt = (resource: Resource): boolean => resource.kind === kind && resource.metadata.name === name;
  if (!resources.some(aimedAt)) throw new Error(`a patch aims at ${kind} ${name}, which is not there`);
  const wanted = parse(patch) as readonly Operation[] | { $patch: string };
  if ("$patch" in wanted) return resources.filter((resource) => !aimedAt(resource));
  return resources.map((resource) => (aimedAt(resource) ? applyPatch(resource, wanted) : resource));
}

function setImage(value: unknown, image: { name: string; newName: string; newTag: string }): void {
  if (typeof value !== "object" || value === null) return;
  const fields = value as Record<string, unknown>;
  if (fields["image"] === image.name) fields["image"] = `${image.newName}:${image.newTag}`;
  for (const inner of Object.values(fields)) setImage(inner, image);
}

function setNamespace(resource: Resource, namespace: string): Resource {
  const place = UNSPACED.includes(resource.kind) ? { name: namespace } : { namespace };
  return { ...resource, metadata: { ...resource.metadata, ...place } };
}
