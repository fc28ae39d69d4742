/**
 * Loads the admin operations on first use. A static import would make every process that imports sagabox load the doctor,
 * the roles and the conservation check, including processes that only publish.
 */
export const loadAdmin = () => import("../admin/index.ts");

export type AdminOperations = Awaited<ReturnType<typeof loadAdmin>>;
