import { posix } from "node:path";
import { findRoom, rooms, type Room } from "./rooms.ts";
import { readImports, type ImportedModule, type SourceFile, type Violation } from "./source-file.ts";

/** What in this file of src/ breaks the table of rooms. */
export function checkRooms(file: SourceFile): Violation[] {
  const path = posix.relative("src", file.path);
  // The front door re-exports all rooms.
  if (!path.includes("/")) return [];
  const name = findRoom(path);
  const room = name === undefined ? undefined : rooms[name];
  if (name === undefined || room === undefined) {
    return [
      { path: file.path, line: 1, problem: "belongs to no room; name it in test/architecture/rooms.ts" },
    ];
  }
  return readImports(file).flatMap((imported) => {
    const problem = imported.specifier.startsWith(".")
      ? checkOwn({ path, name, room }, imported)
      : checkPackage({ name, room }, imported);
    return problem === undefined ? [] : [{ path: file.path, line: imported.line, problem }];
  });
}

interface Importer {
  readonly path: string;
  readonly name: string;
  readonly room: Room;
}

function checkOwn({ path, name, room }: Importer, { specifier }: ImportedModule): string | undefined {
  if (!/\.(ts|json)$/.test(specifier)) return `imports ${specifier} without its ending .ts`;
  const target = posix.join(posix.dirname(path), specifier);
  const targetRoom = target.startsWith("..") ? undefined : findRoom(target);
  if (targetRoom === name || room.files?.includes(target) === true) return undefined;
  // A room and the sub-rooms in its folders are one household: the room may look into them.
  if (targetRoom?.startsWith(`${name}/`) === true) return undefined;
  const allowed = [...room.rooms, ...(room.files ?? [])].join(", ") || "no other room";
  if (targetRoom === undefined) return `imports ${target}, which is no room; ${name} may import: ${allowed}`;
  if (!room.rooms.includes(targetRoom)) {
    return `imports the room ${targetRoom}; ${name} may import: ${allowed}`;
  }
  const throughDoor = target === `${targetRoom}/index.ts` || targetRoom.includes("/");
  return throughDoor ? undefined : `reaches into ${target}; import ${targetRoom}/index.ts instead`;
}

function checkPackage(
  { name, room }: Pick<Importer, "name" | "room">,
  { specifier, typeOnly }: ImportedModule,
): string | undefined {
  if (specifier.startsWith("node:")) return undefined;
  const packageName = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (room.packages?.includes(packageName) === true) return undefined;
  if (typeOnly && room.typePackages?.includes(packageName) === true) return undefined;
  const types = (room.typePackages ?? []).map((known) => `${known} (types only)`);
  const allowed = [...(room.packages ?? []), ...types].join(", ") || "none";
  return `imports the package ${packageName}; packages ${name} may import: ${allowed}`;
}

const UI_PACKAGES = ["preact", "preact/hooks", "@preact/signals", "uplot"];

/** What in this file of ui/ is more than pages may know: their own files, their packages, and the types of the API. */
export function checkUi(file: SourceFile): Violation[] {
  return readImports(file).flatMap(({ specifier, typeOnly, line }) => {
    const target = specifier.startsWith(".") ? posix.join(posix.dirname(file.path), specifier) : specifier;
    const isOwn =
      target.startsWith("ui/src/") || UI_PACKAGES.includes(target) || target === "uplot/dist/uPlot.min.css";
    const isContract = typeOnly && target === "src/dashboard/api-types.ts";
    if (isOwn || isContract) return [];
    const problem = `imports ${target}; pages import their own files, ${UI_PACKAGES.join(", ")}, and types of src/dashboard/api-types.ts`;
    return [{ path: file.path, line, problem }];
  });
}
