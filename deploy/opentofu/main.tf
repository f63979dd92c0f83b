locals {
  control_address  = cidrhost(var.private_cidr, 10)
  worker_addresses = [for number in range(var.workers) : cidrhost(var.private_cidr, 20 + number)]
}

# --- Private network ------------------------------------------------------------------------------

data "openstack_networking_network_v2" "external" {
  name     = var.external_network
  external = true
}

resource "openstack_networking_network_v2" "private" {
  name = var.name
}

resource "openstack_networking_subnet_v2" "private" {
  name       = var.name
  network_id = openstack_networking_network_v2.private.id
  cidr       = var.private_cidr
}

# Workers fetch through its address: they are not reached from outside.
resource "openstack_networking_router_v2" "gateway" {
  name                = var.name
  external_network_id = data.openstack_networking_network_v2.external.id
}

resource "openstack_networking_router_interface_v2" "private" {
  router_id = openstack_networking_router_v2.gateway.id
  subnet_id = openstack_networking_subnet_v2.private.id
}

# --- Firewall -------------------------------------------------------------------------------------

# Nothing comes in but what a rule allows. Everything goes out.
resource "openstack_networking_secgroup_v2" "cluster" {
  name        = "${var.name}-cluster"
  description = "Redis, Consul, metrics and SSH among the machines of the cluster"
}

resource "openstack_networking_secgroup_rule_v2" "cluster" {
  security_group_id = openstack_networking_secgroup_v2.cluster.id
  direction         = "ingress"
  ethertype         = "IPv4"
  remote_group_id   = openstack_networking_secgroup_v2.cluster.id
}

resource "openstack_networking_secgroup_v2" "admin" {
  name        = "${var.name}-admin"
  description = "SSH from the administrators to the control node"
}

resource "openstack_networking_secgroup_rule_v2" "admin" {
  security_group_id = openstack_networking_secgroup_v2.admin.id
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = 22
  port_range_max    = 22
  remote_ip_prefix  = var.admin_cidr
}

# --- Machines -------------------------------------------------------------------------------------

resource "openstack_compute_keypair_v2" "admin" {
  name       = var.name
  public_key = var.public_key
}

resource "openstack_networking_port_v2" "control" {
  name       = "${var.name}-control"
  network_id = openstack_networking_network_v2.private.id
  security_group_ids = [
    openstack_networking_secgroup_v2.cluster.id,
    openstack_networking_secgroup_v2.admin.id,
  ]

  fixed_ip {
    subnet_id  = openstack_networking_subnet_v2.private.id
    ip_address = local.control_address
  }
}

resource "openstack_compute_instance_v2" "control" {
  name        = "${var.name}-control"
  image_name  = var.image
  flavor_name = var.control_flavor
  key_pair    = openstack_compute_keypair_v2.admin.name
  user_data = templatefile("${path.module}/cloud-init/control.yaml", {
    address = local.control_address
    targets = [for address in local.worker_addresses : "${address}:9410"]
  })

  network {
    port = openstack_networking_port_v2.control.id
  }

  # Another number of workers must not replace the node that has Consul.
  lifecycle {
    ignore_changes = [user_data]
  }
}

resource "openstack_networking_floatingip_v2" "control" {
  pool    = var.external_network
  port_id = openstack_networking_port_v2.control.id

  depends_on = [openstack_networking_router_interface_v2.private]
}

resource "openstack_networking_port_v2" "worker" {
  count              = var.workers
  name               = "${var.name}-${count.index}"
  network_id         = openstack_networking_network_v2.private.id
  security_group_ids = [openstack_networking_secgroup_v2.cluster.id]

  fixed_ip {
    subnet_id  = openstack_networking_subnet_v2.private.id
    ip_address = local.worker_addresses[count.index]
  }
}

resource "openstack_compute_instance_v2" "worker" {
  count       = var.workers
  name        = "${var.name}-${count.index}"
  image_name  = var.image
  flavor_name = var.worker_flavor
  key_pair    = openstack_compute_keypair_v2.admin.name
  user_data = templatefile("${path.module}/cloud-init/worker.yaml", {
    address    = local.worker_addresses[count.index]
    control    = local.control_address
    cluster    = var.name
    node       = "node-${count.index}"
    contact    = var.contact
    seeds      = var.seeds
    repository = var.repository
    release    = var.release
  })

  network {
    port = openstack_networking_port_v2.worker[count.index].id
  }

  # The queue of a node is on its disk and nowhere else: a new cloud-init must not replace it.
  lifecycle {
    ignore_changes = [user_data]
  }

  depends_on = [openstack_networking_router_interface_v2.private]
}

# --- Object storage -------------------------------------------------------------------------------

# For KROWL_WARC_UPLOAD.
resource "openstack_objectstorage_container_v1" "warc" {
  name = "${var.name}-warc"
}
