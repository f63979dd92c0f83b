output "control" {
  description = "Address of the control node, by which workers are reached: ssh -J debian@CONTROL debian@WORKER."
  value       = openstack_networking_floatingip_v2.control.address
}

output "workers" {
  description = "Private addresses of the workers."
  value       = local.worker_addresses
}

output "bucket" {
  description = "Object storage for KROWL_WARC_UPLOAD."
  value       = openstack_objectstorage_container_v1.warc.name
}
